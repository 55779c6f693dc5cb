"""From requests to packed commands, from replies to answers: pure."""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple, cast

from hiredis import ReplyError

from gripfast.core.kept import DONE, MIN_HOLD
from gripfast.core.ports import Broken, Claim, Granted, Hold, Keep, Label, LockInfo, Loss, Taken
from gripfast.errors import Reason
from gripfast.stores.holder import Details, read_details, read_moment, told
from gripfast.stores.redis import keys, scripts
from gripfast.stores.redis.keys import MARK, pack

UNCONFIRMED = b"?"
"""The source of no push: whoever was pushed a grant has to claim once more."""
GRACE = b"grace"
"""The answer to an adoption for which the server is in grace."""
PAGE = 100
"""Keys that one step of a list asks the server to look at."""


_TOKEN = re.compile(rb"\d{1,16}(?!\d)")
"""More digits no token has: see `scripts.TOKEN_MOST`."""
_MARKERS = (MIN_HOLD.encode(), DONE.encode())
_FENCE = re.compile(rb"(?P<token>\d{1,16})(?:@(?P<since>\d{1,16}))? (?P<card>[^\n]*)\n(?P<owner>.*)", re.DOTALL)


class Push(NamedTuple):
    owner: str
    granted: Granted | None
    """None: it is told to retry."""


def card(label: Label, host: str, pid: int) -> bytes:
    return json.dumps({"host": host, "pid": pid, **told(label)}).encode()


class Heads(NamedTuple):
    """How the two most frequent calls for one lock begin: all but their arguments."""

    claim: bytes
    release: bytes


@functools.lru_cache(maxsize=1024)
def heads_of(key: str) -> Heads:
    settling = keys.settling(key)
    return Heads(scripts.CLAIM.by_hash + settling, scripts.RELEASE.by_hash + settling)


def times(ttl: float) -> tuple[bytes, bytes]:
    """The ttl, rounded up so that no lease is forgotten before its deadline, and how long to keep the token."""
    ms = math.ceil(ttl * 1000)
    return b"%d" % ms, b"%d" % (ms + scripts.MEMORY_MS)


@functools.lru_cache(maxsize=256)
def packed_times(ttl: float) -> bytes:
    return pack(*times(ttl))


@functools.lru_cache(maxsize=256)
def packed_terms(ttl: float, card: bytes, owner_size: int) -> bytes:
    """What stands between an owner's id and the same id at the end of its card."""
    return b"%b$%d\r\n %b\n" % (packed_times(ttl), len(card) + owner_size + 2, card)


def claim(key: str, claim: Claim, card: bytes, channel: bytes) -> bytes:
    """With an empty channel it stays out of the queue."""
    owner = claim.owner.encode("utf-8", "surrogateescape")  # to_bytes, on the hot path
    size = len(owner)
    terms = packed_terms(claim.ttl, card, size)
    return b"%b$%d\r\n%b\r\n%b%b\r\n$%d\r\n%b\r\n" % (
        heads_of(key).claim, size, owner, terms, owner, len(channel), channel,
    )  # fmt: skip


def release(key: str, hold: Hold) -> bytes:
    owner = hold.owner.encode("utf-8", "surrogateescape")
    return b"%b$%d\r\n%b\r\n" % (heads_of(key).release, len(owner), owner)


def keep(key: str, hold: Hold, keep: Keep) -> bytes:
    owners = pack(to_bytes(hold.owner), to_bytes(keep.owner))
    return scripts.KEEP.by_hash + keys.settling(key) + owners + pack(*times(keep.seconds))


def adopt(key: str, former: str, claim: Claim, card: bytes) -> bytes:
    owner = to_bytes(claim.owner)
    tail = b" " + card + b"\n" + owner
    return scripts.ADOPT.by_hash + keys.settling(key) + pack(to_bytes(former), owner, *times(claim.ttl), tail)


def renew(key: str, hold: Hold) -> bytes:
    owner = to_bytes(hold.owner)
    times = packed_times(hold.ttl)
    return b"%b%b$%d\r\n%b\r\n%b$1\r\n%d\r\n" % (
        scripts.RENEW.by_hash, keys.renewing(key), len(owner), owner, times, hold.shortens,
    )  # fmt: skip


def why(key: str, hold: Hold) -> bytes:
    return scripts.WHY.by_hash + pack(key.encode()) + keys.breaking(key) + pack(to_bytes(hold.owner))


def abandon(key: str, owner: str) -> bytes:
    return scripts.ABANDON.by_hash + keys.settling(key) + pack(to_bytes(owner))


def disown(key: str, owner: str, token: int) -> bytes:
    return scripts.DISOWN.by_hash + keys.settling(key) + pack(to_bytes(owner), b"%d" % token)


def force_release(key: str, note: str | None = None) -> bytes:
    return scripts.FORCE_RELEASE.by_hash + keys.settling(key) + keys.breaking(key) + pack((note or "").encode())


def inspect(key: str) -> bytes:
    return scripts.INSPECT.by_hash + keys.settling(key)


def scan(prefix: str, cursor: str) -> bytes:
    pattern = b"".join(b"\\%c" % byte if byte in b"\\*?[]^-" else b"%c" % byte for byte in prefix.encode()) + b"*"
    return command(b"SCAN", cursor.encode(), b"MATCH", pattern, b"COUNT", b"%d" % PAGE)


def scan_own(cursor: bytes) -> bytes:
    """Keys that are no locks."""
    return command(b"SCAN", cursor, b"MATCH", b"{*}" + MARK + b"*", b"COUNT", b"%d" % (10 * PAGE))


def subscribe(channel: bytes) -> bytes:
    return command(b"SUBSCRIBE", channel)


def replies_to(packed: bytes) -> int:
    """To a request alone, or to one behind ASKING."""
    return 2 if packed.startswith(ASKING) else 1


def new_channel(random: str) -> bytes:
    return b"gripfast:" + random.encode()


def command(*arguments: bytes) -> bytes:
    return b"*%d\r\n%b" % (len(arguments), pack(*arguments))


ASKING = command(b"ASKING")
"""Before a request to a node of a Cluster that is taking over its slot."""
read_layout = command(b"GET", keys.LAYOUT)


def write_layout(number: bytes) -> bytes:
    """Nothing happens if there is one."""
    return command(b"SET", keys.LAYOUT, number, b"NX")


def read_claim(reply: Any, claim: Claim, channel: bytes | None) -> Granted | Taken:
    """Only what arrives on this channel counts as a push, and only if the server that answered publishes to it."""
    if type(reply) is int:
        return Granted(reply, claim.ttl)
    return Taken(read_info(claim.name, reply), last_token(reply[2]), source=channel or b"" if is_heard(reply) else b"")


def is_heard(taken: Any) -> bool:
    return bool(taken[4] == 1)


def is_believed(reply: Any) -> bool:
    """A lease may be dated by it, or somebody told that it is done."""
    first = reply[0] if isinstance(reply, list) and reply else reply
    return (type(first) is int and first > 0) or (type(first) is bytes and first.startswith(DONE.encode()))


def is_free(taken: Any) -> bool:
    """Of a claim that was refused: nobody has the lock, so its server is in grace."""
    return taken[0] is None


def read_why(reply: bytes) -> Loss:
    reason, end, note = reply.partition(b"\n")
    return Broken(note.decode(errors="replace")) if end else cast(Reason, reason.decode())


def read_info(name: str, reply: Sequence[Any]) -> LockInfo | None:
    """None if nobody holds it. A key that someone else's lock has set tells little about its holder."""
    value, left, fence, waiters = reply[:4]
    if value is None:
        return None
    grant = read_grant(fence or b"", value)
    return LockInfo(
        name=name,
        owner=value.decode(errors="backslashreplace"),
        token=grant.token,
        label=grant.details.label,
        host=grant.details.host,
        pid=0 if value.startswith(_MARKERS) else grant.details.pid,  # no process has to live for a marker
        since=grant.since,
        expires_in=left / 1000 if left >= 0 else math.inf,
        waiters=waiters,
        trace=grant.details.trace,
    )


class Grant(NamedTuple):
    token: int = 0
    since: datetime | None = None
    details: Details = Details()


def read_grant(fence: bytes, owner: bytes) -> Grant:
    """What the fence tells about the grant to this owner: nothing if it tells of another, or makes no sense."""
    found = _FENCE.fullmatch(fence)
    if found is None or found["owner"] != owner:
        return Grant()
    since, details = read_moment(int(found["since"] or found["token"])), read_details(found["card"])
    return Grant() if since is None or details is None else Grant(int(found["token"]), since, details)


def read_scan(reply: Any) -> tuple[str, list[str]]:
    """The next cursor, and the names; side keys are no names."""
    cursor, found = reply
    return cursor.decode(), [key.decode(errors="replace") for key in found if MARK not in key]


def read_push(reply: Any) -> Push | None:
    """None if it is no grant: the confirmation of a subscription, say."""
    if not isinstance(reply, list) or reply[0] != b"message":
        return None
    try:
        owner, token, ttl = reply[2].rsplit(b" ", 2)
        ttl, of_permits, slots = ttl.partition(b"/")
        granted = Granted(int(token), int(ttl) / 1000, source=reply[1], slots=read_slots(slots))
        return Push(to_text(owner), None if of_permits and not granted.token else granted)
    except ValueError:  # somebody else's message
        return None


def read_slots(text: bytes) -> tuple[int, ...]:
    """From ranges such as "0-4,7"; "-" if there are none."""
    if text in (b"", b"-"):
        return ()
    ends = [part.partition(b"-") for part in text.split(b",")]
    return tuple(slot for first, _, last in ends for slot in range(int(first), int(last or first) + 1))


def read_policy(info: Any) -> str:
    """What the server does when its memory is full; empty if it does not tell."""
    found = re.search(rb"maxmemory_policy:(\S+)", info) if isinstance(info, bytes) else None
    return found[1].decode() if found else ""


def forgot_script(reply: Any) -> bool:
    return isinstance(reply, ReplyError) and str(reply).startswith("NOSCRIPT")


def is_no_lock(reply: Any) -> bool:
    """An error, as the server says it or we do: someone has put something else under the key. There is nothing of ours
    any more."""
    return isinstance(reply, Exception) and "WRONGTYPE" in str(reply)


def to_bytes(owner: str) -> bytes:
    """Owner ids of our own are plain; those of other lockers may be any bytes."""
    return owner.encode(errors="surrogateescape")


def to_text(owner: bytes) -> str:
    return owner.decode(errors="surrogateescape")


def last_token(fence: bytes | None) -> int:
    found = _TOKEN.match(fence or b"")
    return int(found[0]) if found else 0
