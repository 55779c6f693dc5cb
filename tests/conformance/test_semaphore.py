from gripfast.testing.conformance.test_semaphore import *
