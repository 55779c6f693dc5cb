from gripfast.testing.conformance.test_both_colours import *
