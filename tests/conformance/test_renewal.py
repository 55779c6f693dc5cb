from gripfast.testing.conformance.test_renewal import *
