from gripfast.testing.conformance.test_frozen import *
