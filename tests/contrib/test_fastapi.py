"""Two real uvicorn processes with one FastAPI application, whose endpoints hold locks."""

import http.client
import itertools
import os
import signal
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import NamedTuple

import pytest

import gripfast
from contrib.uvicorn_stage import PATIENCE, Answer, Server, Stage, staged
from support.redis_server import RedisServer, shared_server
from support.waiting import until

CARTS = itertools.count(7)


@pytest.fixture
def stage(tmp_path: Path, sqlite_url: str) -> Iterator[Stage]:
    with staged(tmp_path, sqlite_url) as stage:
        yield stage


class Scene(NamedTuple):
    """A cart, and a gate, that no other test has, at two workers that tests share."""

    stage: Stage
    a: Server
    b: Server
    cart: int

    @property
    def gate(self) -> str:
        return f"gate{self.cart}"

    @property
    def lock(self) -> str:
        return f"cart:{self.cart}"

    def path(self, kind: str) -> str:
        return f"/carts/{self.cart}/{kind}/{self.gate}"

    def later(self, server: Server, kind: str, **headers: str) -> "Future[Answer]":
        return self.stage.later(server, self.path(kind), **headers)

    def until_there(self, times: int = 1) -> None:
        self.stage.until_noted(f"at {self.gate}", times)

    def open(self) -> None:
        self.stage.open(self.gate)

    def take_away(self) -> None:
        """The lock, from whoever has it."""
        assert self.stage.client.force_release(self.lock)

    def holder(self) -> "gripfast.LockInfo | None":
        return self.stage.client.inspect(self.lock)


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stage, Server, Server]]:
    """They renew every 4 seconds, and so often they see that a lock was taken away."""
    folder = tmp_path_factory.mktemp("shop")
    with staged(folder, f"sqlite:///{folder}/locks.db?ttl=12") as stage:
        a, b = stage.serve("A", "B")
        yield stage, a, b


@pytest.fixture
def scene(workers: tuple[Stage, Server, Server]) -> Scene:
    return Scene(*workers, next(CARTS))


# -- two workers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["stop", "thread"])
def test_while_one_worker_serves_a_cart_another_answers_409_and_says_when_to_try_again(kind: str, scene: Scene) -> None:
    first = scene.later(scene.a, kind)
    scene.until_there()
    refused = scene.b.post(scene.path(kind))
    assert refused.status == 409
    assert refused.json == {"detail": "Someone else is working on this. Try again later."}
    assert 1 <= int(refused.headers["Retry-After"]) <= 12
    other = scene.stage.later(scene.b, f"/carts/{next(CARTS)}/{kind}/{scene.gate}")
    scene.until_there(times=2)
    scene.open()
    assert (first.result().status, other.result().status) == (200, 200)
    assert scene.b.post(scene.path(kind)).status == 200, "the lock was released before the answer was sent"


def test_without_the_lock_both_workers_serve_it(scene: Scene) -> None:
    """What the test above would see."""
    both = [scene.later(server, "unlocked") for server in (scene.a, scene.b)]
    scene.until_there(times=2)
    scene.open()
    assert [each.result().status for each in both] == [200, 200]


@pytest.mark.parametrize("store", ["sqlite", "redis"])
def test_requests_that_wait_lose_nothing(store: str, tmp_path: Path, sqlite_url: str) -> None:
    url = sqlite_url if store == "sqlite" else f"{shared_server().url}?prefix={tmp_path.name}:"
    with staged(tmp_path, url) as stage:
        servers = stage.serve("A", "B")
        counted = [stage.later(servers[number % 2], "/carts/7/count") for number in range(40)]
        assert sorted(each.result().json for each in counted) == list(range(1, 41))


def test_when_a_worker_is_killed_the_next_request_goes_on(stage: Stage) -> None:
    a, b = stage.serve("A", "B")
    first = stage.later(a, "/carts/7/stop/never")
    stage.until_noted("at never")
    second = stage.later(b, "/carts/7/patient/open")
    until(lambda: stage.client.inspect("cart:7").pid == a.pid, within=PATIENCE)
    a.kill()
    with pytest.raises((http.client.HTTPException, OSError)):
        first.result()
    stage.open("open")
    assert second.result().status == 200


# -- loss --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["stop", "stubborn"])
def test_when_the_lease_is_lost_the_endpoint_is_cancelled_and_the_answer_is_503(kind: str, scene: Scene) -> None:
    first = scene.later(scene.a, kind)
    scene.until_there()
    scene.take_away()
    answer = first.result()
    assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
    assert answer.json["detail"].startswith("The lock of this request was lost")
    assert scene.stage.noted(f"cancelled at {scene.gate}") == 1
    assert f"a request was stopped: lease on '{scene.lock}' lost (broken)" in scene.a.log
    scene.open()
    assert scene.a.post(scene.path("stop")).status == 200, "the worker goes on"


def test_a_thread_that_lost_its_lease_goes_on_and_can_see_it_but_the_answer_is_503(scene: Scene) -> None:
    first = scene.later(scene.a, "thread")
    scene.until_there()
    scene.take_away()
    assert first.result().status == 503
    scene.open()
    scene.stage.until_noted(f"{scene.gate} held: False")


def test_a_stream_whose_lease_is_lost_is_cut(scene: Scene) -> None:
    with scene.a.opened(scene.path("stream-after")) as response:
        assert response.readline() == b"first\n"
        scene.until_there()
        scene.take_away()
        with pytest.raises(http.client.IncompleteRead):
            response.read()


def test_a_store_that_cannot_be_reached_means_503_and_the_endpoint_does_not_run(tmp_path: Path) -> None:
    with RedisServer() as redis, staged(tmp_path, redis.url) as stage:
        (a,) = stage.serve("A")
        redis.kill()
        answer = a.post("/carts/7/stop/never")
        assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
        assert not stage.noted("at never")
        assert "127.0.0.1" not in answer.text


# -- when it is released -----------------------------------------------------------------------------------------------


def test_before_the_response_means_that_a_stream_runs_without_the_lock(scene: Scene) -> None:
    with scene.a.opened(scene.path("stream-before")) as response:
        assert response.readline() == b"first\n"
        assert scene.holder() is None
        scene.open()
        assert response.read() == b"last\n"


AFTER = [("GET", "", "stream-after"), ("GET", "", "background-after"), ("POST", "/plain", "stream")]


@pytest.mark.parametrize(("method", "app", "kind"), AFTER)
def test_after_the_response_means_that_streams_and_background_tasks_have_the_lock(
    method: str, app: str, kind: str, scene: Scene
) -> None:
    with scene.a.opened(app + scene.path(kind), method) as response:
        scene.until_there()
        assert scene.b.post(scene.path("stop")).status == 409
        scene.open()
        assert response.read()
        until(lambda: scene.holder() is None, within=PATIENCE)
    assert scene.b.post(scene.path("stop")).status == 200


@pytest.mark.parametrize(("method", "app", "kind"), [AFTER[0], AFTER[2]])
def test_a_visitor_who_leaves_a_stream_leaves_no_lock(method: str, app: str, kind: str, scene: Scene) -> None:
    with scene.a.opened(app + scene.path(kind), method) as response:
        scene.until_there()
        assert scene.holder() is not None
        response.close()
    scene.open()  # a stream notices when it sends the next part
    until(lambda: scene.holder() is None, within=PATIENCE)


# -- names -------------------------------------------------------------------------------------------------------------


def test_two_ways_to_write_an_id_are_one_lock(scene: Scene) -> None:
    first = scene.later(scene.a, "stop")
    scene.until_there()
    assert scene.a.post(f"/carts/00{scene.cart}/stop/{scene.gate}").status == 409
    refused = scene.a.post(f"/carts/seven/stop/{scene.gate}")
    assert (refused.status, refused.json["detail"][0]["loc"]) == (422, ["path", "cart_id"])
    scene.open()
    assert first.result().status == 200


def test_a_name_can_come_from_a_dependency(scene: Scene) -> None:
    one, other = [scene.later(scene.a, "tenant", **{"X-Tenant": tenant}) for tenant in ("one", "other")]
    scene.until_there(times=2)
    assert scene.stage.client.inspect(f"cart:one:{scene.cart}") is not None
    assert scene.a.post(scene.path("tenant"), **{"X-Tenant": "one"}).status == 409
    assert scene.a.post(scene.path("tenant")).status == 422
    scene.open()
    assert (one.result().status, other.result().status) == (200, 200)


def test_status_and_header_can_be_chosen_and_a_name_from_outside_does_no_harm(scene: Scene) -> None:
    first = scene.stage.later(scene.a, f"/named/{scene.gate}")
    scene.until_there()
    refused = scene.b.post(f"/named/{scene.gate}")
    assert (refused.status, refused.headers["Retry-After"]) == (423, "7")
    assert scene.a.post(f"/named/{'x' * 3000}").status == 400
    assert scene.a.post("/nothing").status == 500
    until(lambda: "the path of /nothing has no such parameter" in scene.a.log, within=PATIENCE)
    scene.open()
    assert first.result().status == 200


# -- other endpoints ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["async", "thread", "method"])
def test_endpoints_of_starlette_hold_the_same_lock(kind: str, scene: Scene) -> None:
    first = scene.stage.later(scene.a, "/plain" + scene.path(kind))
    scene.until_there()
    refused = scene.b.post(f"/plain/carts/0{scene.cart}/{kind}/{scene.gate}")
    assert (refused.status, refused.text) == (409, "Someone else is working on this. Try again later.")
    assert scene.b.post(scene.path("stop")).status == 409
    scene.open()
    assert first.result().status == 200
    assert scene.b.post("/plain" + scene.path(kind)).status == 200


# -- one worker only ---------------------------------------------------------------------------------------------------


def leads(stage: Stage) -> str:
    """Who leads, once somebody does; the worker wrote its name."""
    started = [line.split() for line in stage.diary if line.startswith("leads ")]
    ended = stage.noted("done leading")
    return started[-1][-1] if len(started) > ended else ""


def test_one_worker_leads_and_when_it_is_killed_another_does(stage: Stage) -> None:
    servers: dict[str, Server] = {server.name: server for server in stage.serve("A", "B", "C")}
    until(lambda: leads(stage), within=PATIENCE)
    first = leads(stage)
    for server in servers.values():
        assert server.get("/greeting").json == "hello", "the application's own lifespan has given its state"
    assert stage.noted("leads") == 1
    servers.pop(first).kill()
    until(lambda: leads(stage) not in ("", first), within=PATIENCE)
    second = leads(stage)
    servers.pop(second).end()
    (third,) = servers
    until(lambda: leads(stage) == third, within=PATIENCE)
    mine = [line.split(" ")[0] for line in stage.diary if line.endswith(f" {second}")]
    assert mine == ["up", "leads", "done", "down"], "the lifespan goes around the function"
    tokens = [int(line.split()[1]) for line in stage.diary if line.startswith("leads")]
    assert tokens == sorted(set(tokens))


def test_of_the_workers_of_one_uvicorn_one_leads(stage: Stage) -> None:
    stage.serve("", words=("--workers", "2"))  # then each notes its pid
    stage.until_noted("up", times=2)
    stage.until_noted("leads")
    first = leads(stage)
    assert stage.noted("leads") == 1
    assert stage.client.inspect("leader").pid == int(first)
    os.kill(int(first), signal.SIGKILL)
    until(lambda: leads(stage) not in ("", first), within=PATIENCE)


def test_a_function_that_returns_is_not_run_by_the_next_worker(stage: Stage) -> None:
    a, b = stage.serve("brief A", "brief B")
    stage.until_noted("done leading")
    assert stage.client.inspect("leader").pid in (a.pid, b.pid)
    b.get("/greeting")
    assert stage.noted("leads") == 1
