from gripfast.testing.conformance.test_several import *
