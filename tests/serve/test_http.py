"""What is answered to whom: real requests to a real server."""

import logging
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from ipaddress import ip_network

import pytest

import gripfast
from gripfast.api.rows import Holder, Row, Scan
from gripfast.api.watching import View
from gripfast.serve import app
from gripfast.serve.access import Access
from gripfast.serve.metrics import exposition
from serve.stage import BEARER, TOKEN, Stage

WITH_DATA = ["/session", "/events", "/metrics"]
OPEN = ["/", "/page.js", "/model.js", "/table.js", "/details.js", "/page.css", "/icon.svg"]
BREAK = {"kind": "lock", "name": "n", "owners": ["nobody's"]}


@pytest.fixture(scope="module")
def resting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A page that nothing changes: many tests may ask it."""
    with Stage(f"sqlite:///{tmp_path_factory.mktemp('resting')}/locks.db", may_break=True) as stage:
        yield stage


# -- the headers of every answer ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [*OPEN, "/session", "/healthz", "/nothing", "/../app.py"])
def test_every_answer_has_the_headers_that_protect_it(resting: Stage, path: str) -> None:
    headers = resting.get(path, {}).headers
    assert {name: headers[name] for name in app.HEADERS} == app.HEADERS
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["Server"] is None


def test_a_refusal_and_a_stream_have_them_too(resting: Stage) -> None:
    assert resting.get("/", {"Host": "evil.example.com"}).headers["Referrer-Policy"] == "no-referrer"
    with resting._asked("GET", "/events", BEARER, None) as response:
        assert response.headers["Content-Security-Policy"] == app.HEADERS["Content-Security-Policy"]
        assert response.headers["Content-Type"].startswith("text/event-stream")


@pytest.mark.parametrize("path", OPEN)
def test_the_page_itself_has_no_data_and_needs_no_token(resting: Stage, path: str) -> None:
    assert resting.get(path, {}).status == 200


def test_the_page_has_no_script_or_style_in_line_and_nothing_from_elsewhere(resting: Stage) -> None:
    html = resting.get("/", {}).body.decode()
    assert re.findall(r"<script(?![^>]*src=)|<style|\son\w+=|\sstyle=|https?:", html) == []
    for path in ("/page.js", "/model.js", "/table.js", "/details.js"):
        code = resting.get(path, {}).body.decode()
        assert re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|https?:", code) == []


def test_nothing_but_the_files_of_the_page_can_be_asked_for(resting: Stage) -> None:
    for path in ("/app.py", "/static/page.js", "/..%2fapp.py", "/../app.py", "/page.js/", "/__init__.py"):
        assert resting.get(path).status in (307, 404), path


# -- who may look ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", WITH_DATA)
@pytest.mark.parametrize(
    "shown", [{}, {"Authorization": "Bearer wrong"}, {"Cookie": "gripfast_1=9999999999.abc"}], ids=str
)
def test_without_the_token_nobody_sees_anything(resting: Stage, path: str, shown: dict[str, str]) -> None:
    answer = resting.get(path, shown)
    assert answer.status == 401
    assert "link that gripfast serve has printed" in answer.json["why"]


@pytest.mark.parametrize("path", ["/", *WITH_DATA])
@pytest.mark.parametrize("host", ["evil.example.com", "evil.example.com:{port}", "127.0.0.1", "localhost:1", ""])
def test_a_name_that_is_not_the_server_s_is_refused(resting: Stage, path: str, host: str) -> None:
    """Whoever lets a name of its own point to this address reads nothing."""
    answer = resting.get(path, {**BEARER, "Host": host.format(port=resting.port)})
    assert answer.status == 421
    assert b"--public-url" in answer.body


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]"])
def test_the_names_of_this_machine_are_the_server_s(resting: Stage, host: str) -> None:
    assert resting.get("/session", {**BEARER, "Host": f"{host}:{resting.port}"}).status == 200


@pytest.mark.parametrize("path", WITH_DATA)
def test_another_site_gets_nothing_even_with_the_token(resting: Stage, path: str) -> None:
    assert resting.get(path, {**BEARER, "Sec-Fetch-Site": "cross-site"}).status == 403
    assert resting.get(path, {**BEARER, "Sec-Fetch-Site": "same-site"}).status == 403


def test_the_token_is_exchanged_for_a_cookie_that_no_script_and_no_other_site_gets(resting: Stage) -> None:
    answer = resting.order("/session", {"token": TOKEN}, {})
    assert (answer.status, answer.body) == (204, b"")
    name, *traits = answer.headers["Set-Cookie"].split("; ")
    assert {trait.lower() for trait in traits} == {"httponly", "samesite=strict", "path=/", "max-age=43200"}
    assert TOKEN not in name
    assert resting.get("/session", answer.cookie).json["user"] == "the bearer of the token"


def test_a_wrong_token_gets_no_cookie(resting: Stage) -> None:
    for wrong in ("", TOKEN[:-1], None, ["x"], {"token": TOKEN}):
        answer = resting.order("/session", {"token": wrong}, {})
        assert (answer.status, answer.headers["Set-Cookie"]) == (401, None)


def test_the_cookie_of_a_page_under_https_is_for_https_and_its_path(sqlite_url: str) -> None:
    with Stage(sqlite_url, public_url="https://ops.example.com/locks/") as stage:
        answer = stage.order("/session", {"token": TOKEN}, {"Host": "ops.example.com"})
        assert {"secure", "path=/locks/"} <= set(answer.headers["Set-Cookie"].lower().split("; "))


def test_who_signs_out_has_no_cookie_any_more(resting: Stage) -> None:
    answer = resting.order("/session", {}, {}, method="DELETE")
    assert "max-age=0" in answer.headers["Set-Cookie"].lower()


def test_a_reverse_proxy_says_who_it_is(sqlite_url: str) -> None:
    with Stage(sqlite_url, access=Access(header="x-forwarded-user")) as stage:
        assert stage.get("/session", {"X-Forwarded-User": "alice"}).json["user"] == "alice"
        refused = stage.get("/session", BEARER)
        assert refused.status == 401
        assert "x-forwarded-user" in refused.json["why"]


def test_a_header_from_elsewhere_than_the_proxy_is_not_believed(sqlite_url: str) -> None:
    elsewhere = Access(header="x-forwarded-user", proxies=(ip_network("10.0.0.0/8"),))
    with Stage(sqlite_url, access=elsewhere) as stage:
        assert stage.get("/session", {"X-Forwarded-User": "alice"}).status == 401


def test_an_open_page_is_open(sqlite_url: str) -> None:
    with Stage(sqlite_url, access=Access()) as stage:
        assert stage.get("/session", {}).json["user"] == "anybody"


# -- breaking ----------------------------------------------------------------------------------------------------------


def wanted(lease: gripfast.Lease, **more: object) -> dict[str, object]:
    return {"kind": "lock", "name": lease.name, "owners": [lease._state.owner], **more}


def test_a_read_only_page_changes_nothing(stage: Stage, client: gripfast.Client) -> None:
    with client.lock("n") as lease:
        answer = stage.order("/break", wanted(lease))
        assert answer.status == 403
        assert "--allow-break" in answer.json["why"]
        assert not stage.get("/session").json["may_break"]
        assert client.inspect("n")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": ""}, 401),
        ({"Origin": "https://evil.example.com"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"X-Gripfast": ""}, 403),
        ({"Content-Type": "text/plain"}, 403),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 403),
        ({"Host": "evil.example.com"}, 421),
    ],
    ids=str,
)
def test_without_the_token_or_from_another_origin_nothing_is_changed(
    breaking: Stage, client: gripfast.Client, headers: dict[str, str], status: int
) -> None:
    lease = client.lock("n").acquire()
    assert breaking.order("/break", wanted(lease), {**BEARER, **headers}).status == status
    assert client.inspect("n")
    assert breaking.order("/break", wanted(lease)).status == 200  # the same with nothing wrong
    assert client.inspect("n") is None


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"])
def test_only_a_post_breaks(resting: Stage, method: str) -> None:
    assert resting.order("/break", BREAK, method=method).status == 405


def test_a_break_is_logged_with_who_did_it_and_its_reason(
    sqlite_url: str, client: gripfast.Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "gripfast.serve")
    with Stage(sqlite_url, may_break=True, access=Access(header="x-user")) as stage:
        lease = client.lock("n\nforged").acquire()
        order = wanted(lease, reason="stuck\nsince noon")
        assert stage.order("/break", order, {"X-User": "alice"}).json == {"broken": 1}
    (record,) = [each for each in caplog.records if each.name == "gripfast.serve"]
    assert "'n\\nforged' broken by alice, reason 'stuck\\nsince noon'; it was held by pid " in record.getMessage()
    assert "\n" not in record.getMessage()
    assert vars(record)["gripfast_user"] == "alice"
    with pytest.raises(gripfast.LeaseLost, match="stuck"):
        lease.extend()


def test_a_holder_that_came_since_keeps_its_lock(breaking: Stage, client: gripfast.Client) -> None:
    with client.lock("n") as first:
        shown = wanted(first)
    with client.lock("n"):
        answer = breaking.order("/break", shown)
        assert answer.status == 409
        assert answer.json["why"].startswith("Nothing was changed")
        assert client.inspect("n")


def test_one_holder_of_several_is_broken(breaking: Stage, client: gripfast.Client) -> None:
    first, second = (client.semaphore("s", limit=3).acquire() for _ in range(2))
    answer = breaking.order("/break", {"kind": "semaphore", "name": "s", "owners": [first._state.owner]})
    assert answer.json == {"broken": 1}
    info = client.inspect("s", "semaphore")
    assert info is not None
    assert [each.owner for each in info.holders] == [second._state.owner]
    second.release()


def test_what_was_done_once_is_not_broken(breaking: Stage, client: gripfast.Client) -> None:
    with client.once("n", keep=60):
        pass
    info = client.inspect("n")
    assert info is not None
    answer = breaking.order("/break", {"kind": "lock", "name": "n", "owners": [info.owner]})
    assert answer.status == 409
    assert "gripfast forget" in answer.json["why"]


def test_who_had_it_can_not_forge_a_line_of_the_log(
    sqlite_url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING, "gripfast.serve")
    monkeypatch.setattr("gripfast.machine.hostname", lambda: "h\nforged \x1b]0;title\x07")
    with gripfast.connect(sqlite_url) as client, Stage(sqlite_url, may_break=True, access=Access()) as stage:
        lease = client.lock("n").acquire()
        assert stage.order("/break", wanted(lease), {}).status == 200
    (record,) = [each for each in caplog.records if each.name == "gripfast.serve"]
    assert r"h\nforged \x1b]0;title\x07" in record.getMessage()
    assert record.getMessage().isprintable()


def test_what_is_not_shown_is_not_broken(sqlite_url: str, client: gripfast.Client) -> None:
    with Stage(sqlite_url, may_break=True, prefix="mine:") as stage:
        other, own = client.lock("other").acquire(), client.lock("mine:a").acquire()
        answer = stage.order("/break", wanted(other))
        assert (answer.status, client.inspect("other") is not None) == (403, True)
        assert "does not show" in answer.json["why"]
        assert stage.order("/break", wanted(own)).status == 200


def test_half_a_character_is_no_token(resting: Stage) -> None:
    assert resting.order("/session", {"token": "\ud800"}).status == 401


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("", 400),
        ("[]", 400),
        ("{}", 400),
        ('{"kind":"lock","name":["n"],"owners":[]}', 400),
        ('{"kind":"lock","name":"","owners":[]}', 400),
        ('{"kind":"mutex","name":"n","owners":[]}', 400),
        ('{"kind":"lock","name":"n","owners":["x"]}', 409),
        ('{"kind":"lock","name":"\\ud800","owners":["x"]}', 400),
        ('{"kind":"lock","name":"n","owners":[{}, [], "\\ud800"]}', 409),
        ("[" * 10_000, 400),
        ('{"name":"' + "n" * 20_000 + '"}', 413),
    ],
    ids=lambda value: str(value)[:40],
)
def test_an_order_that_makes_no_sense_is_refused_with_a_reason(resting: Stage, body: str, status: int) -> None:
    own = {"Origin": resting.site.origins[0], "X-Gripfast": "1", "Content-Type": "application/json"}
    answer = resting.ask("POST", "/break", {**own, **BEARER}, body)
    assert answer.status == status
    assert answer.json["why"]


# -- for machines ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_probes_need_neither_a_token_nor_a_name(resting: Stage, path: str) -> None:
    answer = resting.get(path, {"Host": "10.1.2.3:8023"})
    assert (answer.status, answer.body) == (200, b"ok\n")


def test_metrics_tell_how_much_is_held_and_waited_for(stage: Stage, client: gripfast.Client) -> None:
    with client.lock("n"), client.semaphore("s", limit=2), client.semaphore("s", limit=2):
        answer = stage.get("/metrics")
    figures = dict(line.rsplit(" ", 1) for line in answer.body.decode().splitlines() if not line.startswith("#"))
    assert answer.headers["Content-Type"].startswith("text/plain; version=")
    assert figures["gripfast_store_up"] == "1.0"
    assert figures['gripfast_store_names{kind="lock"}'] == "1.0"
    assert figures['gripfast_store_holders{kind="semaphore"}'] == "2.0"
    assert figures['gripfast_store_waiters{kind="rwlock"}'] == "0.0"
    assert figures["gripfast_viewers"] == "0.0"


def test_metrics_leave_out_the_waiters_that_the_store_can_not_count() -> None:
    lock = Row("lock", "n", (Holder("id", 1, None, "vm", 7, None, 30.0),), waiters=None)
    scan = Scan("somewhere", [lock], 0.0, datetime.now(UTC), 0.1, ())
    told = exposition(View(scan), viewers=0) or b""
    assert b'gripfast_store_names{kind="lock"} 1.0' in told
    assert b'gripfast_store_waiters{kind="lock"}' not in told


def test_without_prometheus_the_answer_says_what_to_install(resting: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    answer = resting.get("/metrics")
    assert answer.status == 501
    assert "gripfast[prometheus]" in answer.json["why"]
