"""Not a module of Gripfast: other libraries have one of this name. Importing it raises an error that says what to
import instead."""

from gripfast.api.misuse import no_such_module

raise no_such_module(__name__)
