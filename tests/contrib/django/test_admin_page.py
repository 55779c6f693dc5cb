"""The admin's page of held locks: who may look, who may break, what is recorded, and texts that mean harm."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from django.core.management import call_command
from django.db import connections
from django.test import Client, override_settings

import gripfast
from gripfast.contrib.django import lock, locks
from support.waiting import until

PAGE = "/admin/gripfast/heldlock/"
HARM = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{ 7|add:7 }}\x1b[2J\u202e"


@pytest.fixture(autouse=True)
def store() -> Iterator[None]:
    with override_settings(GRIPFAST={"default": {"URL": "memory://admin"}, "pg": {"DATABASE": "pg", "MODE": "lease"}}):
        yield


def client(*permissions: str, is_staff: bool = True, **options: Any) -> Client:
    """Logged in as somebody with these permissions."""
    from django.contrib.auth.models import Permission, User

    name = f"with {'-'.join(permissions) or 'nothing'}{'' if is_staff else ', a customer'}"
    user, _ = User.objects.get_or_create(username=name, is_staff=is_staff)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client(**options)
    client.force_login(user)
    return client


def records() -> Any:
    """The history of the admin."""
    from django.contrib.admin.models import LogEntry

    return LogEntry.objects


VIEWER = ("view_heldlock",)
BREAKER = ("view_heldlock", "break_heldlock")


def link(name: str, kind: str = "lock", using: str = "default") -> str:
    return f"{PAGE}break/?using={using}&kind={kind}&name={quote(name)}"


def owner_of(name: str, using: str = "default") -> str:
    info = locks[using].inspect(name)
    assert info is not None
    return str(info.owner)


def test_it_shows_the_locks_of_each_store() -> None:
    browser = client(*VIEWER)
    with lock("nightly", label="by hand"), lock("weekly", using="pg"), locks["pg"].semaphore("shown", 3):
        page = browser.get(PAGE).content.decode()
        assert "nightly" in page
        assert "by hand" in page
        assert "weekly" not in page
        page = browser.get(PAGE, {"using": "pg", "o": "held"}).content.decode()
        assert "weekly" in page
        assert "semaphore" in page
        assert "This store can&#x27;t tell how many wait." in page
        assert "nightly" not in browser.get(PAGE, {"q": "nobody has this"}).content.decode()
    assert "Nothing is held." in browser.get(PAGE).content.decode()
    assert browser.get(PAGE, {"using": "nowhere"}).status_code == 404


def test_the_start_page_of_the_admin_leads_there() -> None:
    assert f'href="{PAGE}"' in client(*VIEWER).get("/admin/").content.decode()
    assert PAGE not in client().get("/admin/").content.decode()


@pytest.mark.parametrize(
    ("permissions", "is_staff", "of_the_list", "of_the_question"),
    [((), True, 403, 403), (VIEWER, True, 200, 403), (BREAKER, True, 200, 200), (BREAKER, False, 302, 302)],
)
def test_each_page_needs_its_permission(
    permissions: tuple[str, ...], is_staff: bool, of_the_list: int, of_the_question: int
) -> None:
    browser = client(*permissions, is_staff=is_staff)
    lease = lock("nightly").acquire()
    assert browser.get(PAGE).status_code == of_the_list
    assert browser.get(link("nightly")).status_code == of_the_question
    posted = browser.post(link("nightly"), {"owner": lease.owner})
    assert posted.status_code == (403 if of_the_question == 403 else 302)
    assert (locks["default"].inspect("nightly") is None) == (of_the_question == 200)


def test_nobody_who_is_not_logged_in_sees_anything() -> None:
    with lock("nightly"):
        assert Client().get(PAGE).status_code == 302
        assert Client().post(link("nightly"), {"owner": owner_of("nightly")}).status_code == 302
        assert locks["default"].inspect("nightly") is not None


def test_a_request_of_another_site_breaks_nothing() -> None:
    browser = client(*BREAKER, enforce_csrf_checks=True)
    lease = lock("nightly").acquire()
    assert browser.post(link("nightly"), {"owner": lease.owner}).status_code == 403
    browser.get(f"{link('nightly')}&owner={lease.owner}")  # a link neither
    assert locks["default"].inspect("nightly") is not None
    token = browser.get(link("nightly")).context["csrf_token"]
    assert browser.post(link("nightly"), {"owner": lease.owner, "csrfmiddlewaretoken": str(token)}).status_code == 302
    assert locks["default"].inspect("nightly") is None


@pytest.mark.parametrize("using", ["default", "pg"])
def test_a_break_is_recorded_and_the_holder_is_told_who_and_why(using: str) -> None:
    records().all().delete()
    browser = client(*BREAKER)
    lease = lock("nightly", label="by hand", ttl=3, using=using).acquire()
    question = browser.get(link("nightly", using=using)).content.decode()
    assert "by hand" in question
    assert "may still be at work" in question
    form = {"owner": lease.owner, "reason": "the host is gone"}
    page = browser.post(link("nightly", using=using), form, follow=True).content.decode()
    assert "is released" in page
    until(lambda: not lease.held, within=30)
    with pytest.raises(gripfast.LeaseLost, match=r"the host is gone \(with view_heldlock-break_heldlock\)"):
        lease.ensure_held()
    (entry,) = records().all()
    assert (entry.user.username, entry.object_id) == ("with view_heldlock-break_heldlock", "nightly")
    assert entry.object_repr == f"{using}: nightly"
    assert entry.change_message.startswith("broke the lock: pid ")
    assert entry.change_message.endswith(f"label by hand, token {lease.token}. Reason: the host is gone")
    assert entry.get_admin_url() is None
    assert "nightly" in browser.get("/admin/").content.decode()  # recent actions


def test_what_can_not_be_recorded_is_not_done(monkeypatch: pytest.MonkeyPatch) -> None:
    browser = client(*BREAKER)

    def fails(**_: object) -> None:
        raise OSError("the database is gone")

    monkeypatch.setattr(records(), "create", fails)
    with lock("nightly"):
        with pytest.raises(OSError, match="gone"):
            browser.post(link("nightly"), {"owner": owner_of("nightly")})
        assert locks["default"].inspect("nightly") is not None


def test_the_record_is_written_before_the_break_also_with_atomic_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the break fails in the middle, the record says that somebody was about to."""
    from gripfast.contrib.django import breaking

    records().all().delete()
    monkeypatch.setitem(connections["default"].settings_dict, "ATOMIC_REQUESTS", True)

    def fails(*_: object) -> None:
        raise OSError("cut off")

    monkeypatch.setattr(breaking, "break_holders", fails)
    with lock("nightly"), pytest.raises(OSError, match="cut off"):
        client(*BREAKER).post(link("nightly"), {"owner": owner_of("nightly")})
    (entry,) = records().all()
    assert entry.change_message.startswith("is about to break the lock: pid")


def test_only_the_holder_that_was_shown_is_broken() -> None:
    browser = client(*BREAKER)
    with lock("nightly"):
        shown = owner_of("nightly")
    with lock("nightly") as later:
        page = browser.post(link("nightly"), {"owner": shown}, follow=True).content.decode()
        assert "has another holder by now" in page
        later.ensure_held()
    assert "Nobody holds" in browser.post(link("nightly"), {"owner": shown}, follow=True).content.decode()


def test_permits_of_a_semaphore_are_broken_one_holder_at_a_time() -> None:
    browser, semaphore = client(*BREAKER), locks["default"].semaphore("api", 2)
    with semaphore.acquire() as kept, semaphore.acquire() as broken:
        browser.post(link("api", "semaphore"), {"owner": broken.owner})
        info = locks["default"].inspect("api", "semaphore")
        assert [each.owner for each in info.holders] == [kept.owner]
        again = semaphore.acquire(wait=5)
        with pytest.raises(gripfast.LeaseLost):
            broken.release()
    again.release()


def test_texts_that_mean_harm_do_nothing() -> None:
    records().all().delete()
    browser = client(*BREAKER)
    lease = locks["default"].lock(HARM, label=HARM).acquire()
    form = {"owner": lease.owner, "reason": HARM}
    pages = [
        browser.get(PAGE),
        browser.get(PAGE, {"q": HARM}),
        browser.get(PAGE, {"o": HARM}),
        browser.get(link(HARM)),
        browser.post(link(HARM), {"owner": HARM}, follow=True),
        browser.post(link(HARM), form, follow=True),
        browser.post(link(HARM), form, follow=True),
        browser.get("/admin/"),
    ]
    assert records().count() == 1
    for page in pages:
        text = page.content.decode()
        assert page.status_code == 200
        assert "<script>alert(1)" not in text
        assert "<img src=x" not in text
        assert ">14<" not in text  # no template of theirs was rendered
        assert "\x1b" not in text
    assert "&lt;script&gt;alert(1)" in pages[0].content.decode()
    assert "\u202e" not in pages[0].content.decode()
    assert r"\u202e" in pages[3].content.decode()
    assert locks["default"].inspect(HARM) is None


def test_a_store_that_can_not_be_reached_is_told_on_the_page() -> None:
    away = {"URL": "redis://127.0.0.1:1/0", "OPTIONS": {"connect_patience": 0.1}}
    with override_settings(GRIPFAST={"default": away}):
        page = client(*BREAKER).get(PAGE)
        assert (page.status_code, "can&#x27;t be reached" in page.content.decode()) == (200, True)
        assert "can&#x27;t be reached" in client(*BREAKER).post(link("nightly"), follow=True).content.decode()


def test_a_wrong_address_is_not_found() -> None:
    browser = client(*BREAKER)
    assert browser.get(f"{PAGE}break/?kind=lock").status_code == 404
    assert browser.get(f"{PAGE}break/?kind=door&name=a").status_code == 404
    assert browser.get(f"{PAGE}break/?using=nowhere&name=a").status_code == 404
    assert browser.get(f"{PAGE}1/change/").status_code == 404


def test_djangos_own_checks_have_nothing_against_it() -> None:
    call_command("check")
