"""redis-py's lock classes over Gripfast: `redis.Redis().lock("job", lock_class=gripfast.compat.redis.Lock)`.

Arguments, return values, errors and the key in Redis are those of redis-py, and both kinds of lock exclude each other.
These things differ on purpose, because redis-py's lock can stay held for ever, or release somebody else's lock:

- `timeout=None` is a lease of 30 s that is renewed while its holder lives. In redis-py the key stays for ever. With a
  timeout the lock is a lease of that many seconds (at least 10 ms, at most a day). It is not renewed, as in redis-py.
- Waiters are served first come, first served, and notified. `sleep` is accepted and ignored.
- A lost reply, a cancelled task, an interrupt or a fork leaves no key behind. Threads and tasks that share a lock
  object do not release each other's lock.
- If a lock object is dropped while it holds the lock, the lock is released, with a WARNING in the log. The same happens
  when a thread ends (with `thread_local`). If you want the lock to stay held until its timeout, keep a reference to the
  lock object until then.
- If the body of a `with` block raises an exception, you get that exception, even if the lock was lost as well.
- If the server can't be reached, acquire() retries until its wait is over (30 s if the wait has no limit), and then
  raises the error. release() raises nothing in that case; Gripfast repeats it in the background.

`lock.fencing_token` and `lock.lease` give access to Gripfast's own API.
"""

from __future__ import annotations

from gripfast.extras import how_to_install as _how_to_install

try:
    import redis as _redis  # noqa: F401 - to tell what is missing before anything else fails
except ImportError as error:
    raise ImportError(f"gripfast.compat.redis needs redis-py: {_how_to_install('redis')}") from error

from gripfast.compat.redis.aio import AsyncLock
from gripfast.compat.redis.blocking import Lock

__all__ = ["AsyncLock", "Lock"]
