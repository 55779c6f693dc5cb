from gripfast.testing.conformance.test_loss import *
