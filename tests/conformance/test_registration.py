from gripfast.testing.conformance.test_registration import *
