from gripfast.testing.conformance.test_clients import *
