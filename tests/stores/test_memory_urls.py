"""`memory://name` is one lock space for the whole process, in both colours; `memory://` is its client's own."""

import uuid

import gripfast
from support.both_colours import staged


def test_a_named_memory_is_shared_by_the_clients_of_the_process() -> None:
    url = f"memory://{uuid.uuid4().hex}"
    with gripfast.connect(url) as one, gripfast.connect(url) as other:
        lease = one.lock("job").acquire(wait=0)
        assert other.lock("job").try_acquire() is None
        lease.release()


def test_memories_of_different_names_are_apart() -> None:
    with gripfast.connect("memory://one") as one, gripfast.connect("memory://other") as other:
        with one.lock("job"), other.lock("job").acquire(wait=0) as lease:
            assert lease.held


def test_a_memory_without_a_name_is_private() -> None:
    with gripfast.connect("memory://") as one, gripfast.connect("memory://") as other:
        with one.lock("job"), other.lock("job").acquire(wait=0) as lease:
            assert lease.held
            assert one.lock("job").try_acquire() is None


@staged
async def test_blocking_and_asyncio_clients_share_a_memory() -> None:
    url = f"memory://{uuid.uuid4().hex}"
    with gripfast.connect(url) as blocking:
        async with gripfast.connect_async(url) as awaiting:
            lease = blocking.lock("job").acquire(wait=0)
            assert await awaiting.lock("job").try_acquire() is None
            lease.release()
            async with awaiting.lock("job") as later:
                assert later.token > lease.token
                assert blocking.lock("job").try_acquire() is None
