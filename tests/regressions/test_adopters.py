"""Two adopters of one text, at the same moment, many times: exactly one believes."""

import threading
from pathlib import Path

import pytest

import gripfast
from sweeps.worlds import url_of

Got = gripfast.Lease | str


def adopt(client: gripfast.Client, text: str, start: threading.Barrier, got: list[Got]) -> None:
    start.wait(10)
    try:
        got.append(client.adopt(text))
    except gripfast.LeaseLost as lost:
        got.append(lost.reason)


@pytest.mark.parametrize("store", ["memory", "sqlite", "redis", "postgres-lease", "mysql-lease"])
def test_exactly_one_of_two_adopters_believes(store: str, tmp_path: Path, is_sampled: bool) -> None:
    url = url_of(store, tmp_path)
    with gripfast.connect(url) as giver, gripfast.connect(url) as one, gripfast.connect(url) as other:
        for _ in range(50 if is_sampled else 1000):
            lease = giver.lock("job").acquire(wait=10)
            text, start, got = lease.detach(), threading.Barrier(2), list[Got]()
            threads = [threading.Thread(target=adopt, args=(each, text, start, got)) for each in (one, other)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            adopted = [each for each in got if isinstance(each, gripfast.Lease)]
            assert len(adopted) == 1, got
            assert [each for each in got if isinstance(each, str)] == ["taken"]
            assert adopted[0].held
            assert adopted[0].token > lease.token
            adopted[0].release()
