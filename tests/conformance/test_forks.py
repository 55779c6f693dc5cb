from gripfast.testing.conformance.test_forks import *
