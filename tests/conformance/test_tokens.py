from gripfast.testing.conformance.test_tokens import *
