from gripfast.testing.conformance.test_races import *
