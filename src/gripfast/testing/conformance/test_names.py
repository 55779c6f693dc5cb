"""Names: everything that is text of a reasonable length is a name of its own; the rest is refused before any I/O."""

import pytest

from gripfast import ConfigurationError
from gripfast.testing.colours import World
from gripfast.testing.fixtures import needs

ODD_NAMES = [
    "a",
    "ü" * 256,  # 512 bytes
    "x" * 512,
    "锁 🔒 \u202e مفتاح",
    'it\'s "quoted" `so`; DROP TABLE locks; --',
    "100%s %d %(name)s",
    "{braces} {} {{ a}b x{}y",
    "two\nlines\r\nand\ttabs",
    " leading and trailing ",
    "/../etc/passwd",
    "\\ \x01 \x7f",
    "*?[a-z]_",
    "lock:job",
]

DIFFERENT = ["Job", "job", "job ", " job", "job\n", "jöb", "jo\u0308b", "job\u200b", "ｊob", "ß", "ss", "1", "01"]

BAD_NAMES = ["", "x" * 513, "ü" * 257, "a\0b", "\0", "lone \ud800 surrogate", b"bytes", None, 5, ["job"]]


async def test_any_text_is_a_name(world: World) -> None:
    alice, bob = world.actors(2)
    for name in ODD_NAMES:
        lease = await alice.acquire(name)
        assert lease.name == name
        assert (await world.inspect(name)).name == name
        assert await bob.try_acquire(name) is None
        await alice.release(lease)
        assert (await bob.acquire(name)).token > lease.token


@needs("lists")
async def test_odd_names_are_listed_as_they_are(world: World) -> None:
    alice = world.actor()
    for name in ODD_NAMES:
        await alice.acquire(name)
    assert sorted(info.name for info in await alice.listing()) == sorted(ODD_NAMES)


async def test_names_are_compared_byte_by_byte(world: World) -> None:
    alice = world.actor()
    leases = [await alice.try_acquire(name) for name in DIFFERENT]
    assert all(leases)
    for name, lease in zip(DIFFERENT, leases, strict=True):
        assert (await world.inspect(name)).owner == lease.owner


async def test_a_bad_name_is_refused_by_whatever_takes_one(world: World) -> None:
    alice = world.actor()
    for name in BAD_NAMES:
        for refusing in (alice.client.lock, alice.client.inspect, alice.client.force_release):
            with pytest.raises(ConfigurationError):
                await alice.calls(refusing, name)
