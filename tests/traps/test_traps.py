"""What went wrong in other lock libraries, and the test that it does not go wrong here.

TRAPS maps each trap to the tests that hold it shut, most of them in the conformance suite, so that every store is held
to them. What no other test shows is tested below, or beside this for one kind of engine.
"""

import ast
import functools
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

import gripfast
from gripfast import GripfastError, LeaseLost, StoreUnavailable
from support.colours import World, renewal_of
from support.waiting import auntil, until

Occupation = Callable[[], AbstractContextManager[None]]

TESTS = Path(__file__).parent.parent
SHIPPED = TESTS.parent / "src" / "gripfast" / "testing"
HERE = "traps/test_traps.py"
REDLOCK = "traps/test_redlock_traps.py"
PARTITIONS = "traps/test_redlock_partitions.py"
REDIS = "traps/test_redis_traps.py"
SQL = "traps/test_sql_traps.py"

TRAPS: dict[str, list[str]] = {
    # Getting in without the lock
    "the body of `with` runs after an acquire that timed out": [
        "conformance/test_exclusion.py::test_the_body_is_not_entered_when_the_lock_was_not_got",
        "conformance/test_decorator.py::test_a_busy_lock_raises_unless_told_otherwise",
    ],
    "the job runs although acquiring raised": [f"{HERE}::test_the_body_is_not_entered_when_the_store_fails"],
    "not got and not reachable are one answer": [
        f"{HERE}::test_an_unreachable_store_is_not_a_busy_lock",
        f"{HERE}::test_an_unreachable_store_is_no_reason_to_skip_a_job",
    ],
    "a lease that has already run out is returned as held": [
        f"{HERE}::test_a_grant_that_came_too_late_is_not_returned"
    ],
    # Lost replies and retries
    "a retry meets its own claim and takes it for someone else's": [
        f"{HERE}::test_a_claim_that_had_to_be_repeated_is_granted_once"
    ],
    "an owner id serves two attempts": ["conformance/test_tokens.py::test_every_attempt_has_an_owner_id_of_its_own"],
    "a release that failed can not be repeated": [
        f"{HERE}::test_a_release_that_could_not_reach_the_store_is_made_good_later"
    ],
    # Cancellation, threads, fork
    "a cancelled acquire leaves the lock held": [
        "sweeps/test_cancels.py::test_a_cancel_at_any_await_comes_out_and_leaves_nothing_held",
        "conformance/test_tasks.py::test_an_acquire_cancelled_after_a_few_turns_of_the_loop_leaves_nothing",
        "conformance/test_tasks.py::test_a_cancelled_waiter_leaves_the_queue",
    ],
    "an interrupt leaves the lock held": [
        "sweeps/test_interrupts_blocking.py::test_an_interrupt_at_any_opcode_comes_out_and_leaves_nothing_held",
        "sweeps/test_interrupts_asyncio.py::test_an_interrupt_at_any_opcode_stops_the_loop_and_leaves_nothing_held",
    ],
    "two users of one lock object release each other": [
        "conformance/test_exclusion.py::test_actors_that_share_a_lock_object_have_leases_of_their_own",
        "conformance/test_exclusion.py::test_a_shared_lock_object_used_by_with_releases_the_leavers_lease",
    ],
    "an owner bound to a thread can not be released elsewhere": [
        "conformance/test_exclusion.py::test_a_lease_can_be_released_by_another_thread_or_task"
    ],
    "a child task inherits its parent's re-entry": [
        "conformance/test_tasks.py::test_a_lock_object_shared_by_child_tasks_does_not_mix_them_up"
    ],
    "after a fork the child believes that it holds the lock": [
        "conformance/test_forks.py::test_the_child_of_a_holder_owns_nothing",
        "conformance/test_forks.py::test_collecting_garbage_in_the_child_frees_nothing",
    ],
    "after a fork nobody renews": [
        "conformance/test_forks.py::test_the_parents_lease_is_renewed_beyond_the_childs_exit",
        "conformance/test_forks.py::test_an_inherited_client_works_anew_in_the_child",
    ],
    # The watchdog
    "one error ends the renewal for good": [f"{HERE}::test_a_failed_renewal_is_repeated"],
    "renewal goes on after the release": ["conformance/test_renewal.py::test_a_released_lease_is_not_renewed"],
    "renewal goes on for an owner that is gone": [
        "conformance/test_renewal.py::test_a_lease_that_was_dropped_is_released_with_a_warning",
        "processes/test_death.py::test_a_newcomer_gets_the_lock_at_once_after_the_process_that_held_it_was_killed",
    ],
    "renewal brings a lost lock back": [
        "conformance/test_operators.py::test_the_holder_learns_of_a_forced_release_at_its_next_renewal",
        "conformance/test_loss.py::test_extending_a_lost_lease_raises_and_does_not_bring_it_back",
    ],
    "renewal extends someone else's lock": [
        "conformance/test_operators.py::test_the_renewal_of_a_broken_lease_does_not_extend_the_next_holders"
    ],
    "the holder is never told of the loss": [
        "conformance/test_loss.py::test_who_waits_for_the_loss_hears_of_it",
        "conformance/test_loss.py::test_on_lost_is_told_the_lease_and_the_reason_once",
        "conformance/test_operators.py::test_the_holder_learns_of_a_forced_release_at_its_next_renewal",
        "conformance/test_tasks.py::test_a_body_is_cancelled_when_its_lease_is_lost",
    ],
    "the loss is told by an interrupt out of nowhere": [
        f"{HERE}::test_a_loss_does_not_interrupt_the_thread_that_holds_the_lease"
    ],
    "the lease counts from the reply, not from the request": [
        f"{HERE}::test_a_lease_counts_from_before_its_request_was_sent"
    ],
    "a ttl of nothing deletes the lock": [
        "conformance/test_renewal.py::test_extending_by_a_bad_ttl_is_refused_and_changes_nothing"
    ],
    "a short ttl is rounded to nothing": [
        "conformance/test_arguments.py::test_a_lease_of_ten_milliseconds_is_granted_and_runs_out"
    ],
    "validity is not counted anew when a lease is extended": [
        "conformance/test_renewal.py::test_extending_to_a_longer_ttl_gives_more_time",
        "conformance/test_renewal.py::test_extending_to_a_shorter_ttl_leaves_less_time",
    ],
    # Redlock
    "one node is down, and the majority stays locked": [
        f"{REDLOCK}::test_a_majority_is_enough_though_nodes_are_down",
        f"{REDLOCK}::test_an_attempt_without_a_majority_leaves_nothing_locked",
    ],
    "one slow node stalls everyone": [f"{REDLOCK}::test_a_slow_node_does_not_stall_anyone"],
    "a claim in flight lands after the release": [
        f"{REDLOCK}::test_a_claim_in_flight_does_not_land_after_the_release",
        f"{REDLOCK}::test_what_a_stopped_node_does_when_it_goes_on_leaves_nothing_locked",
    ],
    "own left-over keys vote against the retry": [f"{REDLOCK}::test_own_left_over_keys_do_not_vote_against_the_retry"],
    "quorum erodes, node by node": [
        f"{REDLOCK}::test_quorum_does_not_erode_when_nodes_are_restarted_one_by_one",
        f"{REDLOCK}::test_a_restarted_node_is_taken_back_by_a_lease_whose_token_is_old",
    ],
    "validity of several nodes is not counted anew by an extension": [
        f"{REDLOCK}::test_validity_is_counted_anew_when_a_lease_is_extended"
    ],
    "the wall clock decides": [f"{REDLOCK}::test_jumps_of_the_wall_clock_change_nothing"],
    "a quorum error hides what is wrong": [
        f"{PARTITIONS}::test_taken_and_down_and_slow_are_told_apart",
        f"{PARTITIONS}::test_who_can_not_reach_a_majority_is_told_so",
    ],
    "a lock of several nodes that has run out is returned": [
        f"{REDLOCK}::test_an_expired_lock_is_never_returned_as_held"
    ],
    # Waiting and fairness
    "waiters poll": ["conformance/test_waiting.py::test_a_release_wakes_the_waiter_at_once"],
    "late comers pass the queue": [
        "conformance/test_waiting.py::test_waiters_get_the_lock_in_the_order_they_came",
        "conformance/test_waiting.py::test_nobody_passes_the_queue_when_the_lock_is_released",
        "conformance/test_waiting.py::test_nobody_passes_the_queue_when_the_lease_expires",
    ],
    "dead waiters block the queue": [
        "processes/test_death.py::test_a_waiting_process_that_is_killed_does_not_block_the_line",
        "conformance/test_waiting.py::test_the_next_in_line_is_served_when_the_first_gave_up",
        "conformance/test_tasks.py::test_the_next_in_line_is_served_when_the_first_is_cancelled",
    ],
    "each wake-up gets the whole patience again": [
        "conformance/test_waiting.py::test_a_hand_off_to_someone_else_does_not_restart_the_patience",
        "conformance/test_waiting.py::test_refreshing_a_place_in_the_queue_does_not_restart_the_patience",
    ],
    # SQL
    "the start of the transaction is taken for now": [f"{SQL}::test_the_start_of_a_transaction_is_not_taken_for_now"],
    "an advisory key is a few bits of a hash": [
        f"{SQL}::test_no_two_of_many_names_have_the_same_advisory_key",
        "stores/test_postgres_sessions.py::test_advisory_keys_have_64_bits_and_do_not_collide",
    ],
    "a session lock behind a pool of transactions": [
        f"{SQL}::test_locks_in_sessions_are_refused_behind_a_pool_of_transactions",
        f"{SQL}::test_leases_work_behind_a_pool_of_transactions",
    ],
    "a time-out leaks into a pooled session": [
        f"{SQL}::test_time_outs_do_not_leak_into_the_session_of_the_caller",
        f"{SQL}::test_a_connection_that_is_used_again_has_no_time_out_of_the_last_one",
    ],
    "a collation merges names, or a limit cuts them": [
        f"{SQL}::test_names_that_a_collation_would_merge_are_different_locks",
        f"{SQL}::test_names_longer_than_64_characters_are_not_cut",
    ],
    "a missing row locks nothing": [f"{SQL}::test_a_row_that_is_missing_lets_one_in_not_all"],
    "a token in the locked row waits for itself": [
        f"{SQL}::test_a_token_is_taken_without_waiting_for_the_row_that_is_locked"
    ],
    "the snapshot is older than the lock": [
        "api/test_within_refusals.py::test_mariadb_is_refused_if_its_snapshot_is_older_than_the_lock",
        "fencing/test_postgres_guard.py::test_an_old_snapshot_gets_no_older_token_through",
    ],
    "two primaries grant one row lock": [
        "stores/test_mysql_servers.py::test_a_node_of_galera_gives_leases_and_refuses_locks_in_sessions"
    ],
    "one stall of the server becomes a lasting outage": [
        "regressions/test_sql_stalls.py::test_after_a_stall_every_task_is_served_again_and_no_lock_is_left",
        "regressions/test_sql_stalls.py::test_what_timed_out_in_the_queue_is_never_sent",
    ],
    "one locked row fails the whole batch of renewals": [
        "regressions/test_sql_locked_rows.py::test_beside_a_locked_row_all_other_leases_are_renewed"
    ],
    "a connection to a server that became read-only is used for ever": [
        "regressions/test_sql_switch_over.py::test_the_next_request_reaches_the_new_primary",
        "regressions/test_redis_replicas.py::test_after_a_switch_over_requests_reach_the_new_primary",
    ],
    "what an engine was told of TLS or schema is dropped": [
        "stores/test_sql_engines.py::test_an_argument_that_can_not_be_carried_over_is_refused_by_its_name",
        "stores/test_sql_engines.py::test_the_tables_are_in_the_schema_of_the_engine",
    ],
    # Redis
    "Lua rounds a token": [f"{REDIS}::test_a_token_of_sixteen_digits_is_kept_to_the_last_one"],
    "side keys lie in another slot": [
        "stores/test_redis_keys.py::test_side_keys_lie_in_the_slot_of_their_lock_if_it_has_odd_braces"
    ],
    "locks are evicted where memory is short": [f"{REDIS}::test_a_server_that_may_evict_locks_is_told_of"],
    "a clean-up overtakes the claim that it cleans up": [
        "regressions/test_redis_late_requests.py::test_a_late_claim_of_a_lease_that_is_over_is_given_back",
        "regressions/test_redis_late_requests.py::test_a_late_claim_of_someone_who_was_refused_is_given_back",
    ],
    "a grant is pushed to nobody": [
        "regressions/test_redis_wakeups.py::test_a_waiter_whose_pushes_get_lost_without_a_word_subscribes_again"
    ],
    "a push that was taken back still reaches somebody": [
        "regressions/test_redis_replicas.py::"
        "test_a_waiter_left_at_a_demoted_server_is_not_told_what_the_new_primary_gives_to_another"
    ],
    # ZooKeeper
    "a node whose creation was not answered blocks the line": [
        "regressions/test_zookeeper_sessions.py::test_a_loop_that_stops_before_the_answer_does_not_keep_the_lock"
    ],
    "a server that is cut off is believed": [
        "chaos/test_zookeeper_cut_off.py::test_a_holder_stops_believing_before_the_next_one_is_granted_when",
        "chaos/test_zookeeper_cut_off.py::"
        "test_a_holder_does_not_believe_a_leader_that_was_stopped_and_is_none_any_more",
    ],
    # One machine
    "a pid that was given to another process keeps a lock": [
        "stores/test_sqlite_engine.py::test_a_pid_that_was_given_to_someone_else_is_gone"
    ],
    "a row of another boot is stolen": [
        "stores/test_sqlite_engine.py::test_a_row_of_another_boot_counts_as_held_until_it_was_watched_for_its_ttl"
    ],
    "kill -9 of a wrapper leaves its command at work": ["cli/test_death.py::test_the_command_dies_with_run"],
    # Time-outs
    "signals, gevent or a server that drips make a time-out longer": [
        "regressions/test_deadlines.py::test_a_server_that_stops_is_noticed_in_time_under",
        "regressions/test_deadlines.py::test_a_server_that_sends_a_byte_now_and_then_does_not_hold_a_call",
    ],
    "two who announce a moment at once lose one of the two": [
        "core/test_soonest.py::test_a_lease_granted_at_any_point_of_a_round_of_the_watchdog_is_renewed",
        "core/test_soonest.py::test_of_two_leases_granted_at_once_the_one_that_is_due_first_counts",
    ],
    # Names
    "`Job` and `job` are one lock": ["conformance/test_names.py::test_names_are_compared_byte_by_byte"],
    "names are cut or reach the engine as code": ["conformance/test_names.py::test_any_text_is_a_name"],
    "a pattern of the engine's leaks into listing": ["conformance/test_operators.py::test_a_prefix_is_taken_literally"],
    # Operations
    "the ttl is for ever by default": [
        "conformance/test_renewal.py::test_the_ttl_of_a_lock_is_thirty_seconds_unless_set"
    ],
    "nobody can see who holds a lock": [
        "conformance/test_operators.py::test_a_held_lock_tells_all_about_its_holder",
        "conformance/test_exclusion.py::test_the_message_of_a_timeout_names_host_pid_label_and_seconds",
    ],
    "nobody can free a lock": ["conformance/test_operators.py::test_forcing_a_held_lock_frees_it"],
    "listing is one blocking scan": ["conformance/test_operators.py::test_the_list_is_complete_over_many_pages"],
}


@functools.cache
def functions_of(module: str) -> set[str]:
    folder = SHIPPED if module.startswith("conformance/") else TESTS
    tree = ast.parse((folder / module).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("trap", TRAPS)
def test_each_trap_has_the_tests_it_names(trap: str) -> None:
    for test in TRAPS[trap]:
        module, function = test.split("::")
        assert function in functions_of(module)


async def test_the_body_is_not_entered_when_the_store_fails(broken: World) -> None:
    """A failed acquire was logged and the job ran anyway."""
    alice = broken.actor()
    entered: list[Any] = []

    async def body(lease: Any) -> None:
        entered.append(lease)

    with pytest.raises(StoreUnavailable):
        await alice.inside("job", body)
    with pytest.raises(StoreUnavailable):
        await alice.calls(alice.client.locked("job")(broken.colour.function(entered.clear)))
    assert entered == []


async def test_an_unreachable_store_is_not_a_busy_lock(broken: World) -> None:
    """ "Someone else has it" and "could not ask" were the same None."""
    alice = broken.actor()
    with pytest.raises(StoreUnavailable) as caught:
        await alice.try_acquire("job")
    assert caught.value.nodes
    with pytest.raises(StoreUnavailable):
        await alice.acquire("job", wait=0.1)


async def test_an_unreachable_store_is_no_reason_to_skip_a_job(broken: World) -> None:
    """The job of a dead engine was skipped every night, and nobody was told."""
    alice = broken.actor()
    job = alice.client.locked("job", wait=0, busy="skip")(broken.colour.function(lambda: None))
    with pytest.raises(StoreUnavailable):
        await alice.calls(job)


async def test_a_grant_that_came_too_late_is_not_returned(world: World, occupied: Occupation) -> None:
    """The request took longer than the ttl, and the lease was dead on arrival."""
    alice = world.actor(world.connect(world.url.split("?")[0], request_timeout=5))
    await alice.release(await alice.acquire("other job"))
    with occupied():
        start = time.monotonic()
        waiting = alice.acquire("job", ttl=1.0, renew=False, wait=10)
        await auntil(lambda: time.monotonic() - start > 1.3)
    lease = await waiting
    assert lease.remaining() > 0


async def test_a_claim_that_had_to_be_repeated_is_granted_once(world: World, occupied: Occupation) -> None:
    """The retry of a claim met the claim itself, and the lock stayed taken by nobody for its whole ttl."""
    alice = world.actor()
    await alice.release(await alice.acquire("other job"))
    with occupied():
        start = time.monotonic()
        waiting = alice.acquire("job", wait=10)
        await auntil(lambda: time.monotonic() - start > 0.4)
    await auntil(waiting.done, within=10)
    lease = await waiting
    assert (await world.inspect("job")).owner == lease.owner
    await alice.release(lease)
    assert await world.inspect("job") is None


async def test_a_release_that_could_not_reach_the_store_is_made_good_later(world: World, occupied: Occupation) -> None:
    """A release forgot its owner id before it asked; the error left a lock that nobody could release."""
    alice = world.actor()

    async def body(lease: Any) -> None:
        occupation.__enter__()

    occupation = occupied()
    await alice.inside("job", body, ttl=20)
    occupation.__exit__(None, None, None)
    await world.free("job", within=5)


async def test_a_failed_renewal_is_repeated(world: World, occupied: Occupation) -> None:
    """The first connection error ended the renewal thread, silently."""
    alice = world.actor()
    lease = await alice.acquire("job", ttl=3)
    start = time.monotonic()
    with occupied():
        await auntil(lambda: time.monotonic() - start > 1.3)  # the renewal was due at 1.0 and given up at 1.1
    await auntil(renewal_of(lease))
    assert lease.held
    assert (await world.inspect("job")).owner == lease.owner


async def test_a_file_that_is_refused_does_not_fill_the_log(
    world: World, database: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The clean-up after a refused claim failed again and again, and logged a traceback each time."""
    database.write_bytes(b"this is not a database, whatever its name says\n" * 100)
    alice = world.actor()
    with pytest.raises(GripfastError):
        await alice.try_acquire("job")
    await world.colour.disconnect(alice.client)
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


def test_a_loss_does_not_interrupt_the_thread_that_holds_the_lease() -> None:
    """The loss was told by a KeyboardInterrupt raised in the main thread, wherever it was."""
    assert threading.current_thread() is threading.main_thread()
    with gripfast.connect("memory://") as client:
        finished = False
        with pytest.raises(LeaseLost):
            with client.lock("job", ttl=0.1, renew=False) as lease:
                until(lease.lost.is_set)
                start = time.monotonic()
                until(lambda: time.monotonic() - start > 0.2)
                finished = True
        assert finished


async def test_a_lease_counts_from_before_its_request_was_sent(world: World, occupied: Occupation) -> None:
    """The clock of the lease started when the reply came: the engine's had started earlier."""
    alice = world.actor(world.connect(world.url.split("?")[0], request_timeout=5))
    lease = await alice.acquire("job", ttl=20, renew=False)
    with occupied():
        extending = alice.extend(lease, 10)
        asked_at_most = 10 * 0.99 - 0.002
        await auntil(lambda: lease.remaining() <= asked_at_most - 0.25)  # a shorter ttl counts from before it is sent
    await extending
    assert lease.remaining() <= (await world.inspect("job")).expires_in
