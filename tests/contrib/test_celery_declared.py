"""What a task of Celery says about its lock, and what it does where no worker runs it."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery
from celery.exceptions import Ignore, Reject

import gripfast
from gripfast.contrib.celery import Busy, LockedTask, OnceTask


@pytest.fixture
def client() -> Iterator[gripfast.Client]:
    with gripfast.connect("memory://") as client:
        yield client


@pytest.fixture
def app() -> Iterator[Celery]:
    with Celery("declared", backend="cache+memory://") as app:
        app.conf.gripfast_url = "memory://"
        yield app


def declare(app: Celery, function: Any = lambda user: user, **options: Any) -> Any:
    function.__name__ = "report"  # Celery takes no nameless functions
    if options.get("base") is not OnceTask:
        options = {"base": LockedTask, "lock": "report:{user}", **options}
    task = app.task(name="report", shared=False, **options)(function)
    return task._get_current_object()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"lock": None}, "needs the name of its lock"),
        ({"lock": "report:{nobody}"}, "'nobody'"),
        ({"lock": lambda user: f"report:{user}"}, 'lock must be a text such as "report:{user_id}", not a function'),
        ({"base": OnceTask, "keep": 60, "once": lambda user: f"report:{user}"}, "once must be a text such as"),
        ({"busy": "wait"}, "busy must be 'retry' or 'skip' or 'reject' or 'raise', or a function, not 'wait'"),
        ({"busy": "reject"}, "busy='reject' needs acks_late=True"),
        ({"lost": "kill"}, "lost must be 'raise' or 'end', not 'kill'"),
        ({"base": OnceTask, "once": "report:{user}"}, "needs `keep`"),
    ],
)
def test_a_wrong_option_is_told_when_the_task_is_declared(app: Celery, options: dict[str, Any], told: str) -> None:
    with pytest.raises(gripfast.ConfigurationError, match=told.replace("(", r"\(")):
        declare(app, **options)


def test_a_bound_task_without_self_is_told_what_it_gets(app: Celery) -> None:
    with pytest.raises(
        gripfast.ConfigurationError, match=r"bind=True passes the task itself: write def report\(self\)"
    ):
        declare(app, lambda: None, bind=True, lock="report")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"timeout": 5}, "has no 'timeout': write ttl=5, .* or wait=5"),
        ({"blocking_timeout": 5}, "has no 'blocking_timeout': write wait=5"),
        ({"expire": 5}, "has no 'expire': write ttl=5"),
        ({"blocking": False}, "has no 'blocking': .*`busy`"),
        ({"reentrant": True}, "has no 'reentrant'"),
        ({"on_lost": print}, "has no 'on_lost': .*lost='end'"),
        ({"label": "mine"}, "has no 'label': .* id of the task"),
        ({"tll": 5}, "has no 'tll': did you mean 'ttl'"),
        ({"maxhold": 5}, "has no 'maxhold': did you mean 'max_hold'"),
        ({"keep": 60}, "has no 'keep': only OnceTask has it"),
        ({"unique_on": ["user"]}, "has no 'unique_on': .*lock='report:{user_id}'"),
        ({"base": OnceTask, "keep": 60, "lock": "x"}, "has no 'lock': only LockedTask has it"),
        ({"base": OnceTask, "keep": 60, "once": "x", "lock_expiry": 5}, "has no 'lock_expiry': write ttl=5"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_a_word_of_other_locks_is_told_when_the_task_is_declared(
    app: Celery, options: dict[str, Any], told: str
) -> None:
    """Celery itself takes any word, and makes an attribute of it."""
    with pytest.raises(gripfast.ConfigurationError, match=told):
        declare(app, **options)


def report(user: int) -> int:
    return user


def test_other_attributes_are_the_program_s_own(app: Celery, client: gripfast.Client) -> None:
    class Fetching(LockedTask):
        """It has a use for the word."""

        timeout = 3

    declared = declare(app, client=client, owner="billing", clock=print, expires=60, time_limit=9)
    assert (declared(7), declared.owner) == (7, "billing")
    options = {"client": client, "base": Fetching, "lock": "fetch:{user}", "timeout": 5}
    fetching = app.task(name="fetch", shared=False, **options)(report)
    assert (fetching(7), fetching.timeout) == (7, 5)


def test_without_a_url_nothing_runs(app: Celery) -> None:
    app.conf.gripfast_url = None
    with pytest.raises(gripfast.ConfigurationError, match=r"app\.conf\.gripfast_url"):
        declare(app)(7)


def test_the_url_may_be_in_the_environment(app: Celery, monkeypatch: pytest.MonkeyPatch) -> None:
    app.conf.gripfast_url = None
    monkeypatch.setenv("GRIPFAST_URL", "memory://")
    assert declare(app)(7) == 7


def test_a_client_that_is_none_is_refused(app: Celery) -> None:
    with pytest.raises(gripfast.ConfigurationError, match="client must be a Client"):
        declare(app, client=lambda task: "redis://localhost")(7)


def test_the_name_has_the_arguments_and_their_defaults(app: Celery, client: gripfast.Client) -> None:
    def names(self: Any, user: int, kind: str = "short") -> str:
        return str(self.lease.name)

    task = declare(app, names, bind=True, client=client, lock="{user}:{kind}")
    assert [task(1), task(user=2), task.apply([3], {"kind": "long"}).get()] == ["1:short", "2:short", "3:long"]


def test_the_label_is_the_id_of_the_task(app: Celery, client: gripfast.Client) -> None:
    task = declare(app, lambda user: client.inspect(f"report:{user}").label, client=client)
    assert task.apply([1], task_id="the-id").get() == "the-id"


@pytest.mark.parametrize("busy", ["retry", "reject", "raise"])
def test_who_calls_a_task_like_a_function_gets_the_error(app: Celery, client: gripfast.Client, busy: str) -> None:
    task = declare(app, client=client, busy=busy, acks_late=True)
    with client.lock("report:7"), pytest.raises(Busy, match="report:7"):
        task(7)


def test_a_task_that_is_called_like_a_function_may_be_skipped(app: Celery, client: gripfast.Client) -> None:
    task = declare(app, client=client, busy="skip")
    with client.lock("report:7"):
        assert task(7) is None
    assert task(7) == 7


@pytest.mark.parametrize("outcome", [Ignore, Reject])
def test_a_function_may_say_it_as_celery_does(app: Celery, client: gripfast.Client, outcome: Any) -> None:
    def decide(task: Any, error: gripfast.LockTimeout) -> None:
        raise outcome(error.holder.label)

    task = declare(app, client=client, busy=decide)
    with client.lock("report:7", label="me"), pytest.raises(outcome, match="me"):
        task(7)


class Decision:
    def __call__(self, task: Any, error: gripfast.LockTimeout) -> str:
        return f"{task.name} is busy"


@pytest.mark.parametrize("decide", [Decision(), functools.partial(Decision.__call__, Decision()), Decision().__call__])
def test_whatever_can_be_called_is_called_with_the_task(app: Celery, client: gripfast.Client, decide: Any) -> None:
    task = declare(app, client=functools.partial(lambda client, task: client, client), busy=decide)
    with client.lock("report:7"):
        assert task(7) == "report is busy"


def test_an_eager_task_is_not_retried_for_ever(app: Celery, client: gripfast.Client) -> None:
    """It knows no countdown."""
    task = declare(app, client=client, max_retries=None)
    with client.lock("report:7"):
        assert isinstance(task.apply([7]).result, Busy)
    assert task.apply([7]).get() == 7


def test_a_task_that_is_a_class_locks_once_although_it_calls_its_parent(app: Celery, client: gripfast.Client) -> None:
    class Base(LockedTask):
        name = "base"
        lock = "report:{user}"

        def run(self, user: int) -> int:
            return self.lease.token + user - self.lease.token

    class Report(Base):
        name = "derived"

        def __init__(self) -> None:
            pass  # as people do, without super()

        def run(self, user: int) -> int:
            return int(super().run(user)) + 1

    Base.client = client
    app.register_task(Base())
    task = app.register_task(Report())
    assert task(7) == 8
    with client.lock("report:7"), pytest.raises(Busy):
        task(7)


def test_a_task_within_a_task_has_a_lease_of_its_own(app: Celery, client: gripfast.Client) -> None:
    def outer(self: Any, user: int) -> list[str]:
        return [self.lease.name, inner(user), self.lease.name]

    inner = declare(app, lambda self, user: self.lease.name, bind=True, client=client, lock="inner:{user}")
    task = app.task(base=LockedTask, shared=False, bind=True, client=client, lock="outer:{user}")(outer)
    assert task(7) == ["outer:7", "inner:7", "outer:7"]


def test_outside_of_a_run_there_is_no_lease(app: Celery) -> None:
    task = declare(app)
    task(7)
    with pytest.raises(gripfast.ConfigurationError, match="does not run in this thread now"):
        _ = task.lease


def test_a_coroutine_function_is_refused_before_its_body_runs_without_the_lock(app: Celery) -> None:
    async def report(user: int) -> None:
        raise AssertionError("it ran")

    with pytest.raises(gripfast.ConfigurationError, match="coroutine"):
        declare(app, report)(7)


def test_a_process_that_is_not_a_worker_is_not_ended(app: Celery, client: gripfast.Client) -> None:
    def report(self: Any, user: int) -> None:
        client.force_release(f"report:{user}")
        self.lease.lost.wait(10)

    task = declare(app, report, bind=True, client=client, lost="end", ttl=1)
    with pytest.raises(gripfast.LeaseLost):
        task(7)
    with pytest.raises(gripfast.LeaseLost):
        task.apply([7]).get()


def test_a_task_without_a_name_of_its_own_is_done_once_for_each_id(app: Celery, client: gripfast.Client) -> None:
    task = declare(app, base=OnceTask, keep=60, client=client)
    assert [task.apply([7], task_id=each).get() for each in "aab"] == [7, None, 7]
    with pytest.raises(gripfast.ConfigurationError, match="has no id"):
        task(7)


def test_a_task_that_retries_itself_is_not_done(app: Celery, client: gripfast.Client) -> None:
    def report(self: Any, user: int) -> int:
        if self.request.retries == 0:
            raise self.retry(countdown=0)
        return user

    task = declare(app, report, bind=True, base=OnceTask, once="{user}", keep=60, client=client)
    assert [task.apply([7]).get(), task.apply([7]).get()] == [7, None]


def test_the_countdown_ends_with_the_time_of_the_holder(app: Celery, client: gripfast.Client) -> None:
    task = declare(app, client=client, default_retry_delay=100)
    with client.lock("report:7", ttl=30):
        holder = client.inspect("report:7")
    assert 25 < task._countdown(holder) <= 36
    assert 100 <= task._countdown(None) <= 120


def test_the_text_of_the_error_survives_the_result_backend() -> None:
    error = Busy("report:7", 0.5, "lock 'report:7' not acquired: held by me")
    again = Busy(*error.args)
    assert str(again) == str(error)
    assert (again.name, again.waited, again.holder) == ("report:7", 0.5, None)
