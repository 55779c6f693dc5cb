from gripfast.testing.conformance.test_kept import *
