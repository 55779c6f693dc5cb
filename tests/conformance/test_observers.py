from gripfast.testing.conformance.test_observers import *
