from gripfast.testing.conformance.test_waiting import *
