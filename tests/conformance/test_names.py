from gripfast.testing.conformance.test_names import *
