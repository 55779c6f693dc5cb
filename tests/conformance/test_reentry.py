from gripfast.testing.conformance.test_reentry import *
