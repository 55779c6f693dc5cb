"""The public names, pinned: adding or losing one is a decision, not an accident."""

import importlib
import inspect

import pytest

import gripfast
from gripfast import testing
from gripfast.testing import World

CLIENT = {
    "adopt", "capabilities", "elected", "election", "force_release", "forget", "inspect", "limited", "list", "lock",
    "locked", "locks", "once", "read_locked", "rwlock", "semaphore", "where", "write_locked",
}  # fmt: skip
LOCK = {"acquire", "name", "try_acquire", "ttl", "within"}
LEASE = {"detach", "ensure_held", "extend", "held", "lost", "name", "owner", "release", "remaining", "token", "ttl"}
LEASES = {"ensure_held", "extend", "held", "lost", "names", "release", "remaining", "tokens"}
ELECTION = {"lead", "leader", "name", "run", "try_lead", "ttl", "value", "watch"}
RUN = {"busy", "done", "holder", "lease", "name"}
EVENT = {"engine", "error", "group", "kind", "name", "owner", "reason", "request", "store", "token"}
OBSERVER = {"claimed", "granted", "lost", "refused", "released", "renewed", "traceparent", "unreachable"}

PUBLIC: dict[str, set[str]] = {
    "Client": CLIENT | {"close"},
    "AsyncClient": CLIENT | {"aclose"},
    "Lock": LOCK,
    "AsyncLock": LOCK,
    "Lease": LEASE,
    "AsyncLease": LEASE,
    "Locks": {"acquire", "names", "try_acquire"},
    "AsyncLocks": {"acquire", "names", "try_acquire"},
    "Once": {"name"},
    "AsyncOnce": {"name"},
    "Run": RUN,
    "AsyncRun": RUN,
    "Leases": LEASES,
    "AsyncLeases": LEASES,
    "Election": ELECTION,
    "AsyncElection": ELECTION,
    "Leader": {"expires_in", "host", "pid", "since", "token", "value"},
    "Semaphore": {"acquire", "limit", "name", "resize", "try_acquire", "ttl"},
    "AsyncSemaphore": {"acquire", "limit", "name", "resize", "try_acquire", "ttl"},
    "SemaphoreLease": LEASE | {"slots"},
    "AsyncSemaphoreLease": LEASE | {"slots"},
    "RWLock": {"name", "read", "write"},
    "AsyncRWLock": {"name", "read", "write"},
    "ReadLock": LOCK,
    "AsyncReadLock": LOCK,
    "WriteLock": LOCK,
    "AsyncWriteLock": LOCK,
    "WriteLease": LEASE | {"downgrade"},
    "AsyncWriteLease": LEASE | {"downgrade"},
    "PermitInfo": {"holders", "kind", "limit", "name", "waiters"},
    "PermitHolder": {
        "expires_in",
        "host",
        "is_writer",
        "label",
        "n",
        "owner",
        "pid",
        "since",
        "slots",
        "token",
    },
    "Acquiring": {"close", "send", "throw"},
    "AcquiringPermits": {"close", "send", "throw"},
    "AcquiringAll": {"close", "send", "throw"},
    "Lost": {"is_set", "wait"},
    "AsyncLost": {"is_set", "wait"},
    "LockKwargs": {
        "group",
        "label",
        "lazy_release",
        "max_hold",
        "min_hold",
        "on_lost",
        "reentrant",
        "renew",
        "ttl",
        "wait",
    },
    "PermitKwargs": {"group", "label", "max_hold", "on_lost", "renew", "ttl", "wait"},
    "LockedOr": set(),
    "AsyncLockedOr": set(),
    "InTransaction": {"name", "token"},
    "LockInfo": {"expires_in", "host", "kept", "label", "name", "owner", "pid", "since", "token", "trace", "waiters"},
    "Event": EVENT | {"at", "held", "holder_trace", "margin", "queued", "trace", "ttl", "waited", "wall"},
    "Observer": OBSERVER,
    "LoggingObserver": OBSERVER,
    "Capabilities": {
        "downgrades",
        "durable_fence",
        "fair",
        "hands_over",
        "keeps",
        "lazy_release",
        "lists",
        "once",
        "processes",
        "push",
        "rwlocks",
        "sees_death",
        "semaphores",
        "session",
        "tells_reason",
        "waiters_seen",
    },
    "GripfastError": set(),
    "LockTimeout": {"name", "waited", "holder"},
    "LeaseLost": {"name", "note", "reason"},
    "StaleToken": {"resource", "token", "seen"},
    "StoreUnavailable": {"message", "nodes"},
    "OutcomeUnknown": {"message", "nodes"},
    "ConfigurationError": set(),
    "ClientClosed": set(),
}
FUNCTIONS = {"async_lock", "configure", "connect", "connect_async", "current_lease", "lock"}
ALIASES = {"EventKind", "EventRequest", "Reason"}
SUBMODULES = {
    "gripfast.compat.asyncio": {"Lock"},
    "gripfast.compat.threading": {"Lock", "RLock"},
    "gripfast.compat.redis": {"AsyncLock", "Lock"},
    "gripfast.observers.otel": {"OpenTelemetryObserver"},
    "gripfast.observers.prometheus": {"PrometheusObserver"},
    "gripfast.testing": {"Clock", "Held", "OncePerRun", "World"},
    "gripfast.fencing": {"Command", "Gate", "async_guard", "compare", "guard", "put", "schema", "write"},
}

TESTING = {
    "Clock": {"advance", "advance_async", "fast_forward", "now", "suspend", "suspend_async"},
    "Held": {"name", "release", "token"},
    "OncePerRun": {"close"},
    "World": {
        *("async_client", "check", "client", "clock", "held", "hold", "lose", "may_stay_held", "outage", "redirect"),
        "url",
    },
}


# An error's attributes are set as it is raised: one of each, to look at.
RAISED: dict[str, tuple[object, ...]] = {
    "LockTimeout": ("name", 1.0),
    "LeaseLost": ("name", "expired"),
    "StaleToken": ("resource", 1, 2),
    "StoreUnavailable": ("message",),
    "OutcomeUnknown": ("message",),
}


def public_attributes(cls: type, example: object = None) -> set[str]:
    """What a user may rely on: methods, properties, slots, annotated fields, and what the example carries.

    What comes from outside the package, such as `with_traceback`, is not ours to pin; what is only there to say that it
    is not there, is not there.
    """
    ours = [base for base in cls.__mro__ if base.__module__ not in ("builtins", "typing")]
    names = {name for base in ours for name in (*vars(base), *inspect.get_annotations(base))}
    names |= set(getattr(example, "__dict__", ()))
    return {name for name in names - set(getattr(cls, "_lacks", ())) if not name.startswith("_")}


def test_the_package_exports_exactly_the_pinned_names() -> None:
    assert set(gripfast.__all__) == set(PUBLIC) | FUNCTIONS | ALIASES | {"__version__"}
    assert len(gripfast.__all__) == len(set(gripfast.__all__))


def test_the_package_shows_its_public_names_only() -> None:
    assert [name for name in dir(gripfast) if not name.startswith("__")] == sorted({*PUBLIC, *FUNCTIONS, *ALIASES})


@pytest.mark.parametrize("name", sorted(gripfast.__all__))
def test_every_exported_name_can_be_imported(name: str) -> None:
    assert getattr(gripfast, name) is not None


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_every_exported_function_can_be_called(name: str) -> None:
    assert callable(getattr(gripfast, name))


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_a_class_has_exactly_the_pinned_attributes(name: str) -> None:
    cls = getattr(gripfast, name)
    example = cls(*RAISED[name]) if name in RAISED else None
    assert public_attributes(cls, example) == PUBLIC[name]


@pytest.mark.parametrize("name", sorted(SUBMODULES))
def test_a_public_submodule_exports_exactly_the_pinned_names(name: str) -> None:
    assert set(importlib.import_module(name).__all__) == SUBMODULES[name]


@pytest.mark.parametrize("name", sorted(TESTING))
def test_a_class_for_tests_has_exactly_the_pinned_attributes(name: str) -> None:
    with World() as world:
        example = {"World": world, "Held": world.hold("name")}.get(name)
    assert public_attributes(getattr(testing, name), example) == TESTING[name]


def test_a_planted_attribute_is_noticed() -> None:
    class Planted:
        __slots__ = ("slot",)
        field: int

        def method(self) -> None: ...

        def _hidden(self) -> None: ...

    class Raised(Exception):
        def __init__(self) -> None:
            self.told = 1

    assert public_attributes(Planted) == {"slot", "field", "method"}
    assert public_attributes(type("Child", (Planted,), {"more": 1})) == {"slot", "field", "method", "more"}
    assert public_attributes(Raised, Raised()) == {"told"}
