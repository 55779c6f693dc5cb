from gripfast.testing.conformance.test_tasks import *
