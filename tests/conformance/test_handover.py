from gripfast.testing.conformance.test_handover import *
