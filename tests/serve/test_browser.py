"""The page in a real browser."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Browser, expect

import gripfast
from gripfast.api.rows import Holder, Row, Scan
from gripfast.serve import feed, server
from serve.browser import Visit, Visits, browser
from serve.stage import TOKEN, Stage
from support.proxy import Proxy
from support.redis_server import HOST, lock_space, shared_server
from support.waiting import until

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True}
ATTACKS = [
    "<img src=x onerror=hacked=1>",
    "<script>hacked=1</script>",
    "\"'><svg onload=hacked=1>",
    "javascript:hacked=1",
    "</table><iframe srcdoc='<script>parent.hacked=1</script>'>",
    "{{hacked=1}}${hacked=1}",
    "\u202eevil\u0007\u001b[31m\u2028",
]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as running:
        yield running


@pytest.fixture
def visit(chromium: Browser) -> Iterator[Visits]:
    """Opens a page, as the link does it. At the end nothing may have gone wrong in any of them."""
    with ExitStack() as stack:
        visits: list[Visit] = []

        def open_page(link: str, **device: object) -> Visit:
            visits.append(Visit(chromium, **device))
            stack.callback(visits[-1].close)
            visits[-1].page.goto(link)
            return visits[-1]

        yield open_page
        assert [wrong for each in visits for wrong in each.wrong] == []


def test_rows_appear_change_and_go_without_a_reload(stage: Stage, client: gripfast.Client, visit: Visits) -> None:
    with client.lock("nightly", label="backup"):
        visitor = visit(stage.link)
        expect(visitor.row("nightly")).to_contain_text("backup")
        expect(visitor.page.locator("#state")).to_have_text("Live")
        assert "token" not in visitor.page.url
        waiter = threading.Thread(target=lambda: client.lock("nightly").acquire().release())
        waiter.start()
        expect(visitor.row("nightly").locator(".waiting")).to_have_text("1")
        expect(visitor.page.locator("#waiting")).to_have_text("1")
        with client.semaphore("api", limit=3):
            expect(visitor.row("api")).to_contain_text("1 of 3")
        expect(visitor.row("api")).to_have_count(0)
    waiter.join()
    expect(visitor.page.locator("#empty")).to_have_text("Nothing is held.")


def test_a_stream_that_ends_is_followed_by_the_next(
    stage: Stage, client: gripfast.Client, visit: Visits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "STREAM_MOST", 0.1)
    visitor = visit(stage.link)
    until(lambda: stage.page.feed.viewers == 1, within=15)
    until(lambda: stage.page.feed.viewers == 0, within=15)
    with client.lock("n"):
        expect(visitor.row("n")).to_be_visible()
        expect(visitor.page.locator("#state")).to_have_text("Live")


def test_the_token_can_be_entered_and_a_reload_needs_none(stage: Stage, visit: Visits) -> None:
    visitor = visit(f"http://127.0.0.1:{stage.port}/")
    field, page = visitor.page.get_by_label("Token", exact=True), visitor.page
    expect(field).to_be_focused()
    assert visitor.violations() == []
    page.evaluate("document.body.append(document.createElement('button'))")  # the checker does find something
    assert [each.partition(":")[0] for each in visitor.violations()] == ["button-name"]
    field.fill("wrong")
    field.press("Enter")
    expect(page.locator("#sign-in-why")).to_contain_text("not the token")
    field.fill(TOKEN)
    field.press("Enter")
    expect(page.locator("#state")).to_have_text("Live")
    page.reload()
    expect(page.locator("#state")).to_have_text("Live")
    page.get_by_role("button", name="Sign out").click()
    expect(field).to_be_focused()
    page.reload()
    expect(field).to_be_visible()
    # A browser notes answers of 401 by itself.
    assert all("401 (Unauthorized)" in wrong for wrong in visitor.wrong)
    visitor.wrong.clear()


def test_everything_can_be_done_with_the_keyboard(stage: Stage, client: gripfast.Client, visit: Visits) -> None:
    with ExitStack() as held:
        for n in range(30):
            held.enter_context(client.lock(f"job:{n:02}"))
        visitor = visit(stage.link, viewport={"width": 1000, "height": 600})
        expect(visitor.row("job:00")).to_be_visible()
        page, press = visitor.page, visitor.page.keyboard.press
        press("ArrowDown")
        until(lambda: visitor.focused() == "job:00")
        press("j")
        until(lambda: visitor.focused() == "job:01")
        press("End")
        until(lambda: visitor.focused() == "job:29")
        assert page.evaluate("scrollY") > 0
        press("Enter")
        expect(page.get_by_role("dialog")).to_contain_text("job:29")
        expect(page.get_by_role("button", name="Break…")).to_have_count(0)  # this page is read-only
        press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
        until(lambda: visitor.focused() == "job:29")
        press("/")
        page.keyboard.type("JOB :17")
        until(lambda: visitor.names() == ["job:17"])
        expect(page.locator("#count")).to_have_text("1 of 30 shown")
        press("Enter")
        until(lambda: visitor.focused() == "job:17")
        press("/")
        press("Escape")
        press("Home")  # in the field: the list stays where it is
        expect(page.locator("#filter")).to_have_value("")


def test_rows_are_sorted_and_filtered_by_kind(stage: Stage, client: gripfast.Client, visit: Visits) -> None:
    with client.lock("b"), client.lock("a"), client.semaphore("s", limit=2), client.rwlock("r").read():
        visitor = visit(stage.link)
        until(lambda: set(visitor.names()) == {"a", "b", "r", "s"})
        by_name = visitor.page.get_by_role("columnheader", name="Name")
        by_name.get_by_role("button").click()
        until(lambda: visitor.names() == ["a", "b", "r", "s"])
        by_name.get_by_role("button").click()
        until(lambda: visitor.names() == ["s", "r", "b", "a"])
        expect(by_name).to_have_attribute("aria-sort", "descending")
        visitor.page.get_by_role("radio", name="Semaphores").check()
        until(lambda: visitor.names() == ["s"])
        visitor.page.reload()  # which keeps both
        until(lambda: visitor.names() == ["s"])
        visitor.page.get_by_role("radio", name="All").check()
        until(lambda: visitor.names() == ["s", "r", "b", "a"])


def test_a_stored_attack_does_nothing(visit: Visits, monkeypatch: pytest.MonkeyPatch) -> None:
    """In names, labels, hosts, and in the owners that other software has chosen."""
    with lock_space("serve-attack:") as url, ExitStack() as held:
        for attack in ATTACKS:
            monkeypatch.setattr("gripfast.machine.hostname", lambda attack=attack: attack)
            client = held.enter_context(gripfast.connect(url))
            held.enter_context(client.lock(attack, label=attack))
            held.enter_context(client.semaphore(f"s{attack}", limit=2, label=attack))
            shared_server().client().set(f"{client._config.prefix}foreign{attack}", attack, px=60_000)
        stage = held.enter_context(Stage(url, may_break=True))
        visitor = visit(stage.link, viewport={"width": 1000, "height": 1400})
        expect(visitor.page.locator("#held")).to_have_text(str(3 * len(ATTACKS)))
        seen = visitor.page.locator("#rows").inner_text()
        assert [attack for attack in ATTACKS[:-1] if attack not in seen] == []
        assert "\\u{202e}evil\\u{7}\\u{1b}[31m\\u{2028}" in seen
        assert "\u202e" not in seen
        for name in visitor.names()[::5]:
            visitor.page.get_by_role("button", name=name, exact=True).first.click()
            visitor.page.locator("#break-all").click()
            visitor.page.get_by_role("button", name="Keep it").click()
            visitor.page.keyboard.press("Escape")
        assert visitor.page.evaluate("typeof hacked") == "undefined"
        assert visitor.page.locator("iframe, #rows img, #rows svg, #rows script, dialog img").count() == 0


def test_break_asks_and_then_breaks(breaking: Stage, client: gripfast.Client, visit: Visits) -> None:
    lease = client.lock("stuck", label="import").acquire()
    visitor = visit(breaking.link)
    page, question = visitor.page, visitor.page.get_by_role("alertdialog")
    page.get_by_role("button", name="stuck").click()
    page.get_by_role("button", name="Break…").click()
    expect(question).to_contain_text("It is held by “import”, pid ")
    expect(question.get_by_role("button", name="Keep it")).to_be_focused()
    assert visitor.violations() == []
    page.keyboard.press("Enter")
    expect(question).to_have_count(0)
    assert client.inspect("stuck")
    page.get_by_role("button", name="Break…").click()
    question.get_by_label("Reason").fill("its host is gone")
    question.get_by_role("button", name="Break", exact=True).click()
    expect(page.locator("#details-state")).to_have_text("Nobody holds it any more.")
    assert client.inspect("stuck") is None
    with pytest.raises(gripfast.LeaseLost, match="its host is gone"):
        lease.extend()


def test_the_question_says_whose_hold_ends(breaking: Stage, client: gripfast.Client, visit: Visits) -> None:
    with client.semaphore("api", limit=3, label="one"), client.semaphore("api", limit=3, label="two"):
        client.lock("sitemap", min_hold=600).acquire().release()
        visitor = visit(breaking.link)
        page, question = visitor.page, visitor.page.get_by_role("alertdialog")
        expect(visitor.row("api")).to_contain_text("one + 1 more")
        page.get_by_role("button", name="api", exact=True).click()
        page.get_by_role("button", name="Break the hold of two").click()
        expect(question).to_contain_text("Break this hold of api?")
        expect(question).to_contain_text("Its holder is “two”, pid ")
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Break all 2 holders…").click()
        expect(question).to_contain_text("The old holders may still be at work")
        page.keyboard.press("Escape")
        page.keyboard.press("Escape")
        page.get_by_role("button", name="sitemap").click()
        expect(page.get_by_role("dialog")).to_contain_text("released at")
        page.get_by_role("button", name="Break…").click()
        expect(question).to_contain_text("It is held by nobody: released, but kept for its min_hold.")
        expect(question.get_by_label("Reason, for the log")).to_be_visible()
        assert visitor.violations() == []


def test_what_is_done_was_not_held(stage: Stage, client: gripfast.Client, visit: Visits) -> None:
    with client.once("digest", keep=600) as run:
        assert run
    visitor = visit(stage.link)
    visitor.page.get_by_role("button", name="digest").click()
    expect(visitor.page.get_by_role("dialog")).to_contain_text("done at")
    expect(visitor.page.get_by_role("dialog")).not_to_contain_text("held since")


@pytest.mark.parametrize(("width", "columns"), [(1280, 7), (801, 6)])
def test_times_are_not_cut(
    stage: Stage, visit: Visits, monkeypatch: pytest.MonkeyPatch, width: int, columns: int
) -> None:
    now = datetime.now(UTC)
    holder = Holder("owner", 1, "label", "host", 7, now - timedelta(hours=23, minutes=58), 3600.0 * 24 - 60)
    rows = [replace(Row("lock", "a very long name " * 9, (holder,), 1234), rate=0.0421)]
    monkeypatch.setattr(server, "scan", lambda *_: Scan("here", rows, 0.0, now, 0.0, ()))
    visitor = visit(stage.link, viewport={"width": width, "height": 600})
    expect(visitor.page.locator("#rows .held")).to_contain_text("23h 58m")
    cells = visitor.page.locator("#rows td:visible")
    assert cells.count() == columns - 1
    assert [cell for cell in cells.all() if cell.evaluate("each => each.scrollWidth > each.clientWidth")] == []
    expect(visitor.page.locator("#rows button.name")).to_have_attribute("title", rows[0].name)


def test_an_unreachable_store_is_told_and_the_page_recovers(visit: Visits) -> None:
    with lock_space("serve-browser:") as url, Proxy((HOST, shared_server().port)) as proxy:
        through = url.replace(f":{shared_server().port}", f":{proxy.port}")
        with gripfast.connect(url) as holder, holder.lock("n"), Stage(through) as stage:
            visitor = visit(stage.link)
            expect(visitor.row("n")).to_be_visible()
            proxy.refuse()
            proxy.cut()
            expect(visitor.page.locator("#trouble")).to_contain_text("The store can't be read: ")
            expect(visitor.page.locator("#state")).to_have_text("Store unreachable")
            expect(visitor.row("n")).to_be_visible()
            assert visitor.violations() == []
            proxy.accept()
            expect(visitor.page.locator("#trouble")).to_be_hidden()
            expect(visitor.page.locator("#state")).to_have_text("Live")


def test_what_was_never_seen_is_not_zero(visit: Visits) -> None:
    with lock_space("serve-browser:") as url, Proxy((HOST, shared_server().port)) as proxy:
        proxy.refuse()
        with Stage(url.replace(f":{shared_server().port}", f":{proxy.port}")) as stage:
            visitor = visit(stage.link)
            expect(visitor.page.locator("#state")).to_have_text("Store unreachable")
            expect(visitor.page.locator("#held")).to_have_text("–")
            proxy.accept()
            expect(visitor.page.locator("#held")).to_have_text("0")


@pytest.mark.parametrize("device", [{}, {"color_scheme": "dark"}, PHONE], ids=["light", "dark", "narrow"])
def test_the_accessibility_checker_finds_nothing(
    breaking: Stage, client: gripfast.Client, visit: Visits, device: dict[str, object]
) -> None:
    with client.lock("report:1", label="monthly"), client.semaphore("api", limit=3), client.semaphore("api", limit=3):
        visitor = visit(breaking.link, **device)
        expect(visitor.row("api")).to_contain_text("2 of 3")
        assert visitor.violations() == []
        visitor.page.get_by_role("button", name="api", exact=True).click()
        expect(visitor.page.get_by_role("dialog")).to_contain_text("slot 1")
        assert visitor.violations() == []
        assert visitor.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_ten_thousand_locks_stay_usable(stage: Stage, visit: Visits, monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime.now(UTC)
    holders = [Holder(f"owner{n}", n, None, f"host{n % 7}", n, now, 30.0) for n in range(10_000)]
    rows = [Row("lock", f"job:{n:05}", (holder,), n % 3) for n, holder in enumerate(holders)]
    monkeypatch.setattr(server, "scan", lambda *_: Scan("here", rows, 0.0, now, 0.0, ()))
    visitor = visit(stage.link)
    expect(visitor.page.locator("#held")).to_have_text("10\u202f000")
    assert len(visitor.names()) < 60
    visitor.page.keyboard.press("End")
    until(lambda: visitor.focused() == "job:09999")
    assert len(visitor.names()) < 60
    assert visitor.page.locator("#table").get_attribute("aria-rowcount") == "10001"
    took = visitor.page.evaluate("""async () => {
        const began = performance.now();
        document.getElementById("filter").value = "host3 7";
        document.getElementById("filter").dispatchEvent(new Event("input"));
        await new Promise(requestAnimationFrame);
        return performance.now() - began;
    }""")
    assert took < 500  # a tenth of that beside nothing else
    expect(visitor.page.locator("#count")).to_contain_text(" of 10\u202f000 shown")
