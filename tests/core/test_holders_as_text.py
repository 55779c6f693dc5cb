"""What `repr()` of an answer of inspect() says to somebody who looks at it in a prompt."""

import pytest

import gripfast


@pytest.mark.parametrize(("half", "role"), [("read", "reader"), ("write", "writer")])
def test_a_holder_of_a_read_write_lock_is_a_reader_or_a_writer(half: str, role: str) -> None:
    with gripfast.connect("memory://") as client, getattr(client.rwlock("index", label="Ann"), half)() as lease:
        info = client.inspect("index", kind="rwlock")
        assert repr(info).startswith(f"PermitInfo(name='index', kind='rwlock', holders=(PermitHolder({role}, owner=")
        assert f"token={lease.token}, label='Ann'" in repr(info)
        assert "1073741824" not in repr(info)


def test_a_holder_of_a_semaphore_has_permits() -> None:
    with gripfast.connect("memory://") as client, client.semaphore("api", 3).acquire(2) as lease:
        text = repr(client.inspect("api", kind="semaphore"))
        assert text.startswith("PermitInfo(name='api', kind='semaphore', limit=3, holders=(PermitHolder(owner=")
        assert f"n=2, slots={lease.slots}" in text
