"""A few tests of the suite, beside each observer that misbehaves. `pytest tests/conformance --observer all` has all."""

from collections.abc import Iterator

import pytest

from gripfast.testing.conformance.test_clients import (
    test_closing_a_client_ends_its_threads_and_tasks,
    test_closing_a_client_hands_its_locks_to_the_waiters,
)
from gripfast.testing.conformance.test_exclusion import (
    test_an_error_in_the_body_comes_out_and_frees_the_lock,
    test_an_unprotected_counter_under_the_lock_loses_no_increment,
)
from gripfast.testing.conformance.test_loss import test_who_waits_for_the_loss_hears_of_it
from gripfast.testing.conformance.test_waiting import (
    test_a_release_wakes_the_waiter_at_once,
    test_waiters_get_the_lock_in_the_order_they_came,
)
from support import misbehaving


@pytest.fixture(autouse=True, params=misbehaving.KINDS)
def observer(request: pytest.FixtureRequest) -> Iterator[None]:
    with misbehaving.beside(request.param):
        yield
