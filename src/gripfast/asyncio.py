"""Not a module of Gripfast: other libraries have one of this name. Whoever imports it is told what to write."""

from gripfast.api.misuse import no_such_module

raise no_such_module(__name__)
