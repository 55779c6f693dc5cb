from gripfast.testing.conformance.test_exclusion import *
