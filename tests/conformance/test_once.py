from gripfast.testing.conformance.test_once import *
