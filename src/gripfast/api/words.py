"""Words that other libraries (redis-py, filelock, threading) have for locks, and what to write here instead.

These are tables alone; `api/misuse.py` says when their rows are told. In a row, `{await_}` and `{async_}` stand for the
words that an async class needs, and `{value}` for what the caller has passed.
"""

from __future__ import annotations

from collections.abc import Mapping

_RELEASE = (
    "the lease has it. Write `{async_}with lock:`, or `lease = {await_}lock.acquire()` and, when the work is done, "
    "`{await_}lease.release()`. To free a lock that another program holds, write `{await_}client.force_release(name)`"
)
_INSPECT = (
    "write `{await_}client.inspect(name)`, which is None if nobody holds the lock. For a lock of gripfast.{lock}(), "
    "client is gripfast.{connect}(), with the arguments that you gave to gripfast.configure(), if any. For your lease, "
    "read lease.held"
)
_HELD = (
    "a lock does not know who holds it. Write `lease = {await_}lock.acquire()` and read lease.held; to see who holds "
    "the lock, write `{await_}client.inspect(name)`"
)
_EXTEND = (
    "leases are renewed while they are held. To renew one now, write `{async_}with lock as lease:` and inside it "
    "`{await_}lease.extend()`"
)
_TOKEN = "every lease has its own. Write `lease = {await_}lock.acquire()`, and read lease.token or lease.owner"
_WAIT = "to limit the wait, write `{await_}lock.acquire(wait=5)`"
_SETTING = "it is a setting, which is chosen when the lock is made: write client.lock(name, wait=5, ttl=30)"
_FORCE = "write `{await_}client.force_release(name)`"
_ACQUIRE = "write `{async_}with client.lock(name):`, or `lease = {await_}client.lock(name).acquire()`"
_ACQUIRED = "it is acquired already. For another lease, call `{await_}lock.acquire()`"
_HELD_NOW = ("locked", "is_locked", "owned", "is_owned", "acquired", "is_acquired", "is_held")
_MAKE = "write client.lock(name)"
_REENTRANT = "write client.lock(name, reentrant=True)"
_TRY = "write `lease = {await_}client.lock(name).try_acquire()`, which is None if someone else holds the lock"
_ELECTION = "write client.election(name, value), and `{async_}with election.lead() as term:`"
_RW = "write client.rwlock(name).read() or client.rwlock(name).write()"
_LIMITED = (
    "write @client.limited(name, limit): it limits how many calls run at the same time. Gripfast does not count calls "
    "per second"
)
_DECORATED = "to decorate a function, write `@client.read_locked(name)` or `@client.write_locked(name)`"
_REMAINING = "lease.remaining() returns the seconds that are left"

OF_LOCKS: Mapping[str, str] = {
    **dict.fromkeys(("release", "unlock", "do_release"), _RELEASE),
    **dict.fromkeys(("locked", "is_locked"), _INSPECT),
    **dict.fromkeys(("acquired", "is_acquired", "owned", "is_owned", "held", "is_held", "lock_counter"), _HELD),
    **dict.fromkeys(("extend", "reacquire", "renew", "refresh", "remaining", "touch", "keepalive"), _EXTEND),
    **dict.fromkeys(("token", "owner", "local", "lost"), _TOKEN),
    **dict.fromkeys(("holder", "get_owner"), _INSPECT),
    **dict.fromkeys(("timeout", "blocking", "blocking_timeout"), _WAIT),
    **dict.fromkeys(("force_release", "force_unlock", "break_lock", "reset"), _FORCE),
    **dict.fromkeys(("try_lock", "tryacquire"), "write `{await_}lock.try_acquire()`"),
    **dict.fromkeys(("id", "key"), "read lock.name"),
    **dict.fromkeys(("inspect", "contenders", "get_owner_id"), _INSPECT),
    **dict.fromkeys(("wait", "expire", "auto_renewal", "auto_renew", "reentrant", "max_hold"), _SETTING),
    "cancel": "a wait ends by itself: write `{await_}lock.acquire(wait=5)`",
    "close": _RELEASE,
    "do_acquire": "write `{await_}lock.acquire()`",
    "lock": "write `{await_}lock.acquire()`",
    "lock_file": "read lock.name",
    "__call__": "to decorate a function, write `@client.locked(name)`, with client = gripfast.connect(url)",
}


def _with_kind(kind: str) -> Mapping[str, str]:
    """What operators do with a name is meant for the lock of that name, unless they say of which kind it is."""
    told = {"(name)`": f"(name, kind={kind!r})`", "a lock that another program holds": "what other programs hold"}
    hints = dict(OF_LOCKS)
    for words, instead in told.items():
        hints = {name: hint.replace(words, instead) for name, hint in hints.items()}
    return hints


OF_SEMAPHORES: Mapping[str, str] = {
    **_with_kind("semaphore"),
    "__call__": "to decorate a function, write `@client.limited(name, limit)`",
}
OF_HALVES: Mapping[str, str] = {
    **_with_kind("rwlock"),
    "__call__": _DECORATED,
}
_HALF = "write rwlock.read() or rwlock.write(), which are used like a lock"
OF_RWLOCKS: Mapping[str, str] = {
    **dict.fromkeys(("acquire", "try_acquire", "__enter__", "__aenter__", "release", "locked", "within"), _HALF),
    **dict.fromkeys(("reader", "read_lock", "ReadLock", "gen_rlock", "rlock"), "write rwlock.read()"),
    **dict.fromkeys(("writer", "write_lock", "WriteLock", "gen_wlock", "wlock"), "write rwlock.write()"),
    **{
        f"{verb}_{half}": f"write `lease = {{await_}}rwlock.{half}().acquire()`, or `{{async_}}with rwlock.{half}():`"
        for verb in ("acquire", "lock")
        for half in ("read", "write")
    },
    **dict.fromkeys(
        ("release_read", "release_write", "unlock_read", "unlock_write"), "write `{await_}lease.release()`"
    ),
    "downgrade": "the lease of a writer has it: `with rwlock.write() as lease:` and inside it `lease.downgrade()`",
    "__call__": _DECORATED,
    "upgrade": "there is none: two readers who wait to write would wait for each other. Write rwlock.write()",
}
OF_CLIENTS: Mapping[str, str] = {
    **dict.fromkeys(("acquire", "try_acquire"), _ACQUIRE),
    **dict.fromkeys(("release", "unlock"), _RELEASE),
    **dict.fromkeys(("is_locked", "exists", "get", "get_owner", "owner", "holder", "contenders"), _INSPECT),
    **dict.fromkeys(("ttl", "pttl"), "write `{await_}client.inspect(name)`, and read its expires_in"),
    **dict.fromkeys(("list_locks", "locks_held", "keys", "ls"), "write client.list()"),
    **dict.fromkeys(("disconnect", "stop", "shutdown"), "write `{await_}client.{close}()`"),
    **dict.fromkeys(("Lock", "get_lock", "create_lock"), _MAKE),
    **dict.fromkeys(("RLock", "rlock"), _REENTRANT),
    **dict.fromkeys(("Election", "leader_election", "elect", "lead", "leader"), _ELECTION),
    **dict.fromkeys(("try_lock", "trylock"), _TRY),
    **dict.fromkeys(("extend", "reacquire", "renew"), _EXTEND),
    **dict.fromkeys(("break_lock", "force_unlock", "delete"), _FORCE),
    **dict.fromkeys(("ping", "open", "connect"), "leave it out: the first request connects"),
    "async_lock": "make a client with gripfast.connect_async(url)",
    **dict.fromkeys(("Semaphore", "BoundedSemaphore", "get_semaphore"), "write client.semaphore(name, limit)"),
    **dict.fromkeys(("limit", "throttle", "throttled", "rate_limit", "rate_limited", "ratelimit"), _LIMITED),
    **dict.fromkeys(("RWLock", "rw_lock", "read_lock", "write_lock", "ReadLock", "WriteLock"), _RW),
    **dict.fromkeys(("mutex", "Mutex"), _MAKE),
    "wait": _ACQUIRE,
    "barrier": "there is none. A client has lock(), locks(), semaphore(), rwlock(), election() and once()",
}
OF_LEASES: Mapping[str, str] = {
    **dict.fromkeys(_HELD_NOW, "read lease.held"),
    **dict.fromkeys(("valid", "is_valid", "is_lost", "check"), "read lease.held, or call lease.ensure_held()"),
    **dict.fromkeys(("renew", "refresh", "reacquire"), "write `{await_}lease.extend()`"),
    **dict.fromkeys(("unlock", "close", "aclose"), "write `{await_}lease.release()`"),
    **dict.fromkeys(("timeout", "expires_at", "expires_in", "time_left", "remaining_time"), _REMAINING),
    **dict.fromkeys(("acquire", "try_acquire"), _ACQUIRED),
    **dict.fromkeys(("expired", "is_expired", "validity"), "read lease.held, or call lease.remaining()"),
    "fencing_token": "read lease.token",
    **dict.fromkeys(("id", "uuid", "lease_id"), "read lease.owner, or lease.token, which grows with every lease"),
    "key": "read lease.name",
    "upgrade": "there is none: two readers who wait to write would wait for each other. Acquire rwlock.write() instead",
    "downgrade": "only the lease of a writer has it: `{async_}with rwlock.write() as lease:` and inside it "
    "`{await_}lease.downgrade()`",
    "wait": "for its loss, write `{await_}lease.lost.wait()`. For a lock, write `{await_}lock.acquire(wait=5)`",
    "force_release": _FORCE,
}
OF_WRITE_LEASES: Mapping[str, str] = {name: hint for name, hint in OF_LEASES.items() if name != "downgrade"}
_LEAD = "write `{async_}with election.lead() as term:`, or `{await_}election.run(function)`"
_RESIGN = (
    "the term has it: leave the block of `{async_}with election.lead() as term:`, or write `{await_}term.release()`. "
    "With run(), return from the function"
)
_LEADS = "write `term = {await_}election.lead()` and read term.held. For who leads, write `{await_}election.leader()`"
_LEADER = "write `{await_}election.leader()`, which is None if nobody leads"
_WATCH = "write `{async_}for leader in election.watch():`"
_VALUE = "a value counts for a whole term. Write client.election(name, value), and lead again"
_CANDIDATES = "write `info = {await_}client.inspect(name)`. If somebody leads, info.waiters is how many others wait"

OF_ELECTIONS: Mapping[str, str] = {
    **dict.fromkeys(("elect", "campaign", "acquire", "start", "join", "volunteer", "contend", "enter"), _LEAD),
    **dict.fromkeys(("__enter__", "__aenter__"), _LEAD),
    **dict.fromkeys(("resign", "release", "cancel", "stop", "abdicate", "step_down", "withdraw", "close"), _RESIGN),
    **dict.fromkeys(("is_leader", "is_leading", "leading", "has_leadership", "elected", "held", "token"), _LEADS),
    **dict.fromkeys(("get_leader", "current_leader", "leader_id", "holder", "winner"), _LEADER),
    **dict.fromkeys(("observe", "subscribe", "listen", "on_change", "watchers", "observers"), _WATCH),
    **dict.fromkeys(("proclaim", "update", "set_value"), _VALUE),
    **dict.fromkeys(("contenders", "candidates", "participants", "waiters"), _CANDIDATES),
    "try_acquire": "write `term = {await_}election.try_lead()`, which is None if someone else leads",
    "lock": "an election is the lock of its name. Write client.lock(name)",
    "__call__": "to decorate a function, write `@client.elected(name)`",
}
_DECORATES = "it decorates functions. Write"
OF_DECORATORS: Mapping[str, str] = {
    "__enter__": f"{_DECORATES} `with client.lock(name):`",
    "__aenter__": f"{_DECORATES} `async with client.lock(name):`",
    **dict.fromkeys(("acquire", "try_acquire", "release"), f"{_DECORATES} client.lock(name)"),
}
_PERMITS = "client.semaphore(name, limit), client.rwlock(name).read() or client.rwlock(name).write()"
OF_PERMIT_DECORATORS: Mapping[str, str] = {
    "__enter__": f"{_DECORATES} `with`, and one of {_PERMITS}",
    "__aenter__": f"{_DECORATES} `async with`, and one of {_PERMITS}",
    **dict.fromkeys(("acquire", "try_acquire", "release"), f"{_DECORATES} {_PERMITS}"),
}
OF_ONCE: Mapping[str, str] = {
    **dict.fromkeys(
        ("acquire", "try_acquire", "release"), "write `{async_}with client.once(…) as run:` and inside it `if run:`"
    ),
    **dict.fromkeys(("reset", "clear", "forget"), "write `{await_}client.forget(name)`"),
}
OF_ASYNC_CLIENTS = {**OF_CLIENTS, "close": "write `await client.aclose()`"}
"""What locks, clients and leases do not have, and what is meant here."""

_NO_POLLING = "leave it out, because Gripfast knows when a waiter has to retry"
_TTL = "write ttl={value}, the seconds that a lease lasts unless it is renewed (which happens unless renew=False)"
RENEW = "write renew={value}"
RENEWS = "leave it out: renewing is the default"
_POLLING = dict.fromkeys(("sleep", "poll_interval", "poll_intervall", "check_interval", "retry_delay"), _NO_POLLING)

NOT_WAIT = "write `lease = {await_}lock.try_acquire()`, which is None if someone else holds the lock"
RAISES = "which raises gripfast.LockTimeout if the lock is not free in time"
NOT_LEAD = "write `term = {await_}election.try_lead()`, which is None if someone else leads"
RAISES_TERM = "which raises gripfast.LockTimeout if someone else still leads by then"

_LOCK: Mapping[str, str] = {
    **_POLLING,
    **dict.fromkeys(("expire", "expires", "expiry", "lease_time", "lifetime", "duration"), _TTL),
    **dict.fromkeys(("auto_release_time", "lock_timeout"), _TTL),
    **dict.fromkeys(("auto_renewal", "auto_renew", "auto_extend", "autorenew"), RENEW),
    **dict.fromkeys(("url", "client", "redis"), "a client makes locks. Write gripfast.connect(url).lock(name)"),
    **dict.fromkeys(
        ("acquire_timeout", "retry_count", "retry_times"), "write wait=…, the seconds to wait for the lock"
    ),
    "timeout": f"{_TTL}, or wait={{value}}, the seconds to wait for the lock",
    **dict.fromkeys(
        ("blocking_timeout", "wait_timeout", "max_wait"), "write wait={value}, the seconds to wait for the lock"
    ),
    **dict.fromkeys(("ex", "px", "ttl_ms", "timeout_ms"), "write ttl=…, in seconds"),
    **dict.fromkeys(("nx", "fail_when_locked"), f"leave it out. Not to wait, {NOT_WAIT}"),
    **dict.fromkeys(("recursive", "rlock"), "write reentrant={value}"),
    **dict.fromkeys(("async_release", "release_async", "fire_and_forget"), "write lazy_release={value}"),
    **dict.fromkeys(("heartbeat", "watchdog"), "leave it out, because leases are renewed while they are held"),
    **dict.fromkeys(("key", "resource"), "the name comes first. Write lock({value})"),
    **dict.fromkeys(("identifier", "owner"), "write label={value} to say who holds the lock"),
    "blocking": f"leave it out. Not to wait, {NOT_WAIT}",
    "thread_local": "leave it out, because a lease may be used in any thread",
    "id": "write label={value} to say who holds the lock",
}
TIMES = ("timeout", "blocking_timeout", "acquire_timeout", "wait_timeout", "max_wait")
_WITHOUT_RENEWAL = "leave it out, because a term is renewed until it is released or lost"
_ELECTION_VALUE = "write value={value}, what others read as leader.value"
_LEAD_WAIT = "it belongs to a campaign. Write election.lead(wait={value})"
_KEEP = "write keep={value}, the seconds for which the store remembers that the work was done"
_ONLY_LOCKS = "leave it out: only lock() and locks() have it"
_TO_BE_CONFIRMED = "leave it out, because the store has to confirm that it was done"
_TO_SKIP = "To skip the call if the lock is taken, write wait=0, busy='skip'"
_ALWAYS_RENEWED = "leave it out, because leases on several locks are always renewed"

OPTIONS: Mapping[str, Mapping[str, str]] = {
    "acquire": {
        **_POLLING,
        **dict.fromkeys(("timeout", "blocking_timeout"), f"write acquire(wait={{value}}), {RAISES}"),
        **dict.fromkeys(("fail_when_locked", "blocking", "block"), f"leave it out. Not to wait, {NOT_WAIT}"),
        "ttl": "it is a setting of the lock. Write client.lock(name, ttl={value})",
        "token": "every lease gets its own. Read lease.token",
    },
    "try_acquire": {
        **dict.fromkeys(("timeout", "blocking_timeout", "wait"), "to wait, write acquire(wait={value})"),
        "blocking": "leave it out. try_acquire() never waits, acquire() does",
    },
    "extend": dict.fromkeys(
        ("additional_time", "replace_ttl"),
        "extend(ttl) makes the lease last that many seconds from now. It does not add to what is left",
    ),
    "release": {
        "force": "leave it out. To free a lock that another program holds, write `{await_}client.force_release(name)`",
    },
    "force_release": dict.fromkeys(("note", "why", "message"), "write reason={value}"),
    "lock": _LOCK,
    "locked": {
        **dict.fromkeys(("blocking", "nx", "fail_when_locked"), f"leave it out. {_TO_SKIP}"),
        **dict.fromkeys(
            ("on_busy", "if_busy", "on_locked", "if_locked", "when_busy", "raise_on_duplicate"),
            f"write busy='raise', which is the default, or busy=function. {_TO_SKIP}",
        ),
        **dict.fromkeys(("skip", "skip_if_locked", "skip_if_busy"), _TO_SKIP[0].lower() + _TO_SKIP[1:]),
    },
    "semaphore": {
        **_LOCK,
        **dict.fromkeys(("value", "permits", "leases", "max_leases", "count", "capacity"), "write limit={value}"),
        "reentrant": "leave it out: each acquire() gets permits of its own",
        "lazy_release": _ONLY_LOCKS,
    },
    "rwlock": {
        **_LOCK,
        "reentrant": "leave it out: a thread or task that reads may read again, and one that writes may do both",
        "lazy_release": _ONLY_LOCKS,
    },
    **{
        half: dict.fromkeys(
            ("wait", "timeout", "blocking_timeout"),
            f"write rwlock.{half}().acquire(wait={{value}}), or make it with client.rwlock(name, wait={{value}})",
        )
        for half in ("read", "write")
    },
    "once": {
        **_LOCK,
        **dict.fromkeys(("ttl_done", "expire_after", "period", "interval", "lock_at_least_for"), _KEEP),
        "renew": "leave it out, because the lease is always renewed while the work is done",
        "reentrant": "leave it out: work that is going on can't be begun again, not even inside its own block",
        "on_lost": "leave it out, and call run.lease.ensure_held() in the work",
        "max_hold": "leave it out, and end the work yourself",
        "busy": "leave it out: read run.busy, or run.done",
        "lazy_release": _TO_BE_CONFIRMED,
    },
    "locks": {
        **_LOCK,
        **dict.fromkeys(("renew", "auto_renewal", "auto_renew", "auto_extend", "autorenew"), _ALWAYS_RENEWED),
        "reentrant": "leave it out: a thread or task that holds one of the locks can't acquire them again",
    },
    "election": {
        **_LOCK,
        **dict.fromkeys(("renew", "auto_renewal", "auto_renew", "auto_extend", "autorenew"), _WITHOUT_RENEWAL),
        **dict.fromkeys(("label", "id", "identifier", "identity", "data", "candidate", "node_id"), _ELECTION_VALUE),
        **dict.fromkeys(("wait", "acquire_timeout", "blocking_timeout", "blocking"), _LEAD_WAIT),
        **dict.fromkeys(("lease_duration", "session_timeout"), _TTL),
        **dict.fromkeys(("on_elected", "on_started_leading", "func", "callback"), "write election.run(function)"),
        **dict.fromkeys(("on_stopped_leading", "on_loss"), "write on_lost={value}, called with the lease and a reason"),
        "max_term": "write max_hold={value}",
        "reentrant": "leave it out: a leader can't be elected again while it leads",
        "lazy_release": _ONLY_LOCKS,
        "url": "a client makes elections. Write gripfast.connect(url).election(name)",
    },
    "lead": {
        **dict.fromkeys(("timeout", "blocking_timeout"), f"write lead(wait={{value}}), {RAISES_TERM}"),
        "blocking": f"leave it out. Not to wait, {NOT_LEAD}",
        "ttl": "it is a setting of the election. Write client.election(name, ttl={value})",
        "value": "it is a setting of the election. Write client.election(name, {value})",
    },
    "try_lead": {
        **dict.fromkeys(("timeout", "blocking_timeout", "wait"), "to wait, write lead(wait={value})"),
    },
}
"""Keywords that a function does not take, and what is meant here."""


_AS_IT_IS = "leave it out, because acquire() waits for ever unless `wait` says otherwise"
TO_WAIT_FOR_EVER: Mapping[str, str] = {
    **dict.fromkeys(("lock", "locks", "semaphore", "rwlock"), _AS_IT_IS),
    "once": "write wait=None to wait for ever",
    "election": "leave it out, because lead() waits for ever",
}
"""What is meant by a time of -1, which is the default of threading and filelock."""

OF_A_LOCK = (
    "wait", "renew", "max_hold", "reentrant", "label", "on_lost", "group", "min_hold", "lazy_release"
)  # fmt: skip
"""Settings of a lock that are no options of `connect()`."""

MISSING: Mapping[str, str] = {
    "limit": "a semaphore needs a limit, which is how many may have a permit at the same time: write limit=3",
    "keep": "once() needs `keep`, the seconds for which the store remembers that the work was done: write keep=7 * "
    "86400",
}
"""What has to be given, and what it is."""

NAMES: Mapping[str, str] = {
    "RLock": "write gripfast.lock(name, reentrant=True)",
    **dict.fromkeys(("FileLock", "SoftFileLock", "RedisLock"), "write gripfast.lock(name)"),
    **dict.fromkeys(("AsyncFileLock", "alock", "lock_async"), "write gripfast.async_lock(name)"),
    **{name: f"it is a module: write `import gripfast.{name}`" for name in ("testing", "fencing")},
    **dict.fromkeys(("aio", "asyncio", "aconnect"), "write gripfast.connect_async(url)"),
    **dict.fromkeys(("from_url", "get_client", "init", "setup"), "write gripfast.connect(url)"),
    **dict.fromkeys(("Redlock", "RedLock"), "write gripfast.connect([url, url, url])"),
    **dict.fromkeys(("list", "ls"), "write gripfast.connect(url).list()"),
    **dict.fromkeys(("inspect", "is_locked"), "write gripfast.connect(url).inspect(name)"),
    **dict.fromkeys(("acquire", "release"), "write `with gripfast.lock(name):`"),
    "force_release": "write gripfast.connect(url).force_release(name)",
    **dict.fromkeys(("election", "LeaderElection", "elect", "elected"), "write gripfast.connect(url).election(name)"),
    "synchronized": "write @client.locked(name), with client = gripfast.connect(url)",
    **dict.fromkeys(("exceptions", "exc"), "the errors are in gripfast: `from gripfast import LockTimeout`"),
    **dict.fromkeys(
        ("AlreadyLocked", "LockAcquireError", "LockException", "NotAcquired", "AcquireTimeout", "Busy", "LockBusy"),
        "the error is gripfast.LockTimeout",
    ),
    **dict.fromkeys(
        ("LockLost", "LeaseExpired", "LockExpired", "LockNotHeld", "NotHeld", "LostLock"),
        "the error is gripfast.LeaseLost",
    ),
    "locked": "write @client.locked(name), with client = gripfast.connect(url)",
    **dict.fromkeys(
        ("try_lock", "with_lock", "get_lock", "DistributedLock", "Mutex", "mutex"), "write gripfast.lock(name)"
    ),
    **dict.fromkeys(("Redis", "RedisCluster", "LockManager"), "write gripfast.connect(url)"),
    "locks": "write gripfast.connect(url).locks(name, name)",
    **dict.fromkeys(("semaphore", "BoundedSemaphore"), "write gripfast.connect(url).semaphore(name, limit)"),
    **dict.fromkeys(("rwlock", "rw_lock"), "write gripfast.connect(url).rwlock(name)"),
    "once": "write gripfast.connect(url).once(name, keep=seconds)",
    "adopt": "write gripfast.connect(url).adopt(text)",
    **{
        name: f"write @client.{name}({given}), with client = gripfast.connect(url)"
        for name, given in {"limited": "name, limit", "read_locked": "name", "write_locked": "name"}.items()
    },
    "close": "the default client is closed when the program ends. To close a client, write client.close()",
    **dict.fromkeys(("set_default_client", "set_default", "default"), "write gripfast.configure(url)"),
    **dict.fromkeys(("LockTimeoutError", "TimeoutError"), "the error is gripfast.LockTimeout"),
    **dict.fromkeys(
        ("Error", "ConnectionError"), "the errors are gripfast.GripfastError and gripfast.StoreUnavailable"
    ),
    "Timeout": "the error is gripfast.LockTimeout",
    "LockError": "the errors are gripfast.LockTimeout and gripfast.LeaseLost; both are GripfastErrors",
    "LockNotOwnedError": "the error is gripfast.LeaseLost",
}
"""Names of other libraries that the package does not have, and what is meant here."""
