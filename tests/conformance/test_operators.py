from gripfast.testing.conformance.test_operators import *
