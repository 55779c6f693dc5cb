from gripfast.testing.conformance.test_decorator import *
