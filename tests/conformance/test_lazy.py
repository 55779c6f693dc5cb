from gripfast.testing.conformance.test_lazy import *
