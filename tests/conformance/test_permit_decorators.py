from gripfast.testing.conformance.test_permit_decorators import *
