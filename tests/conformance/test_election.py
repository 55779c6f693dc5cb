from gripfast.testing.conformance.test_election import *
