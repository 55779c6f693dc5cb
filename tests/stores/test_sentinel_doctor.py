"""`gripfast doctor` at a service with real Sentinels: a sound one, and what goes wrong with Sentinels."""

from collections.abc import Iterator

import pytest

from gripfast.stores.sentinel.doctor import View, Watch, judge
from stores.doctor_stage import found, report_on
from support.redis_server import HOST
from support.sentinel_servers import SERVICE, Watched
from support.waiting import until

STATE = {"ip": "10.0.0.1", "port": "6379", "num-other-sentinels": "2", "num-slaves": "2"}


@pytest.fixture(scope="module")
def watched() -> Iterator[Watched]:
    with Watched() as watched:
        yield watched


def test_a_sound_service_has_no_problem(watched: Watched) -> None:
    report = report_on(watched.url)
    assert (report.usable, report.problems) == (True, 0)
    assert report.summary.endswith("primary, 2 replicas, nothing on disk; 3 Sentinels")
    assert "redis-failover" in {each.name for each in report.findings}


def test_the_settings_of_the_primary_are_judged(watched: Watched) -> None:
    for server in watched.servers:
        watched.command(server, "CONFIG", "SET", "maxmemory", "100mb", "maxmemory-policy", "allkeys-lru")
    try:
        assert found(watched.url)["redis-evicts"].kind == "problem"
    finally:
        for server in watched.servers:
            watched.command(server, "CONFIG", "SET", "maxmemory", "0", "maxmemory-policy", "noeviction")


def test_sentinels_that_the_url_does_not_name_are_found(watched: Watched) -> None:
    url = f"redis+sentinel://{HOST}:{watched.sentinels[0].port}/{SERVICE}"
    assert found(url)["sentinel-not-named"].what == "there are 3 Sentinels, and the URL names 1"


def test_a_service_that_no_sentinel_knows_is_found(watched: Watched) -> None:
    findings = found(watched.url.replace(f"/{SERVICE}", "/other"))
    assert findings["unusable"].kind == "problem"
    assert "does not know the service other" in findings["sentinel-unknown-service"].what


def test_sentinels_that_are_down_and_a_quorum_that_is_lost_are_found() -> None:
    with Watched(replicas=1) as watched:
        first, second, last = watched.sentinels
        for sentinel in (first, second):
            sentinel.kill()
        down = found(watched.url)["sentinel-down"]
        assert down.kind == "problem"
        assert down.where == f"{HOST}:{first.port}, {HOST}:{second.port}"
        until(lambda: "sentinel-quorum" in found(watched.url), within=60)
        assert found(watched.url)["sentinel-quorum"].where == f"{HOST}:{last.port}"


# Judging, by plain values ---------------------------------------------------------------------------------------------


def judged(*states: dict[str, str]) -> list[str]:
    return [each.name for each in judge(Watch("main", [View(f"s{n}", state=each) for n, each in enumerate(states)]))]


def test_three_that_agree_have_nothing_to_say() -> None:
    assert judged(STATE, STATE, STATE) == []


def test_what_they_say_is_judged() -> None:
    assert judged(STATE, STATE, {**STATE, "ip": "10.0.0.2"}) == ["sentinel-disagree"]
    alone = {**STATE, "num-other-sentinels": "1"}
    assert judged(alone, alone) == ["sentinel-few"]
    bare = {**STATE, "num-slaves": "0"}
    assert judged(bare, bare, bare) == ["sentinel-no-replica"]
