from gripfast.testing.conformance.test_arguments import *
