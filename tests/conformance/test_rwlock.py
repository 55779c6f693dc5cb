from gripfast.testing.conformance.test_rwlock import *
