"""One suite for every store, sync and async: `from gripfast.testing.conformance import *` in a file of tests."""

from gripfast.testing.conformance.test_arguments import *
from gripfast.testing.conformance.test_both_colours import *
from gripfast.testing.conformance.test_clients import *
from gripfast.testing.conformance.test_decorator import *
from gripfast.testing.conformance.test_election import *
from gripfast.testing.conformance.test_exclusion import *
from gripfast.testing.conformance.test_forks import *
from gripfast.testing.conformance.test_frozen import *
from gripfast.testing.conformance.test_handover import *
from gripfast.testing.conformance.test_kept import *
from gripfast.testing.conformance.test_lazy import *
from gripfast.testing.conformance.test_loss import *
from gripfast.testing.conformance.test_names import *
from gripfast.testing.conformance.test_observers import *
from gripfast.testing.conformance.test_once import *
from gripfast.testing.conformance.test_operators import *
from gripfast.testing.conformance.test_permit_decorators import *
from gripfast.testing.conformance.test_races import *
from gripfast.testing.conformance.test_reentry import *
from gripfast.testing.conformance.test_registration import *
from gripfast.testing.conformance.test_renewal import *
from gripfast.testing.conformance.test_rwlock import *
from gripfast.testing.conformance.test_semaphore import *
from gripfast.testing.conformance.test_several import *
from gripfast.testing.conformance.test_tasks import *
from gripfast.testing.conformance.test_tokens import *
from gripfast.testing.conformance.test_waiting import *
from gripfast.testing.fixtures import no_surprise, only_what_the_store_can_do, tasks, threads, world

pytest_plugins = ("gripfast.testing.plugin",)
"""pytest reads this name in the file of tests, and loads what it names."""
