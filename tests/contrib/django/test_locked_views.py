"""`@locked` on views, of functions and of classes, sync and async; and the transactions of requests."""

import asyncio
import threading
from typing import Any

import pytest
from django.core.handlers.base import BaseHandler
from django.core.management.base import BaseCommand
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client, RequestFactory, override_settings
from django.views import View
from django.views.decorators.csrf import csrf_exempt

import gripfast
from gripfast.contrib.django import async_lock, lock, locked, locks

WORDS = "would be released before it commits"


@pytest.fixture
def stall(request: pytest.FixtureRequest) -> str:
    """One of the test's own."""
    from bazaar.models import Note, Stall

    Note.objects.all().delete()
    name = f"of {request.node.name}"[:50]
    Stall.objects.update_or_create(name=name, defaults={"sold": 0})
    return name


@pytest.fixture
def atomic_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections["default"].settings_dict, "ATOMIC_REQUESTS", True)


def notes() -> list[str]:
    from bazaar.models import Note

    return sorted(Note.objects.values_list("text", flat=True))


def get(view: str, stall: str) -> Any:
    return Client().get(f"/{view}/{stall}")


# -- busy --------------------------------------------------------------------------------------------------------------


def test_a_view_runs_under_its_lock(stall: str) -> None:
    assert get("sell", stall).json()["sold"] == 1
    assert get("sell", stall).json()["sold"] == 2
    assert locks["default"].inspect(f"stall:{stall}") is None


def test_a_busy_view_answers_with_its_status_and_when_to_retry(stall: str) -> None:
    with locks["default"].lock(f"stall:{stall}", ttl=9, label="secret of the holder"):
        response = get("sell_or_refuse", stall)
    assert response.status_code == 409
    assert 1 <= int(response["Retry-After"]) <= 9
    assert "secret" not in response.content.decode()
    assert get("sell_or_refuse", stall).status_code == 200


def test_busy_must_be_the_status_of_an_error() -> None:
    with pytest.raises(gripfast.ConfigurationError, match="such as 409 or 503, not 200"):
        locked("stall", busy=200)
    with pytest.raises(gripfast.ConfigurationError, match="busy must be"):
        locked("stall", busy="refuse")  # type: ignore[arg-type]


@pytest.mark.parametrize("busy", [409, "raise"])
@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"timeout": 5}, "write ttl=5.* or wait=5"),
        ({"tll": 5}, "did you mean 'ttl'"),
        ({"ttl": -1}, "ttl must be"),
        ({"wait": "5s"}, "wait must be a number of seconds"),
        ({"blocking": False}, "busy='skip'"),
    ],
)
def test_a_wrong_setting_is_told_where_it_is_written(busy: Any, wrong: dict[str, Any], told: str) -> None:
    """Not at the first request, although the settings of Django may not be there yet."""
    with override_settings(GRIPFAST={"default": {"URL": "no URL"}}):
        with pytest.raises((TypeError, gripfast.ConfigurationError), match=told):
            locked("item:{name}", busy=busy, **wrong)
        locked("item:{name}", busy=busy, ttl=5, lazy_release=True)


def test_a_decorator_without_a_name_is_refused() -> None:
    with pytest.raises(gripfast.ConfigurationError, match="a lock's name must be text"):
        locked(print)  # type: ignore[arg-type]


def test_busy_may_be_a_function_or_nothing_or_an_error() -> None:
    @locked("plain", busy="skip", wait=0)
    def skipping() -> str:
        return "ran"

    @locked("plain", busy=lambda error: f"busy: {error.name}", wait=0)
    def telling() -> str:
        return "ran"

    @locked("plain", wait=0)
    def raising() -> str:
        return "ran"

    with locks["default"].lock("plain"):
        assert (skipping(), telling()) == (None, "busy: plain")
        with pytest.raises(gripfast.LockTimeout, match="held by"):
            raising()
    assert (skipping(), telling(), raising()) == ("ran", "ran", "ran")


def test_a_timeout_inside_the_view_is_not_taken_for_its_own_lock() -> None:
    @locked("outer", busy=409)
    def view() -> str:
        with lock("inner", wait=0):
            return "ran"

    with locks["default"].lock("inner"), pytest.raises(gripfast.LockTimeout, match="'inner'"):
        view()


def test_a_name_may_use_what_the_url_gives_to_a_view_of_any_shape(stall: str) -> None:
    assert get("sale", stall).json() == {"atomic": False, "held": True}
    assert get("sale_by_method", stall).json() == {"held": True}
    assert get("sale_by_view", stall).json() == {"atomic": False, "held": True}
    with locks["default"].lock(f"stall:{stall}"):
        assert get("sale", stall).status_code == 409


def test_a_name_that_the_call_does_not_give_is_refused() -> None:
    @locked("stall:{missing}")
    def view(**kwargs: Any) -> None:
        raise AssertionError

    with pytest.raises(gripfast.ConfigurationError, match="'missing', but this call has no such argument"):
        view(name="x")


def test_other_decorators_may_be_around_it(stall: str) -> None:
    @csrf_exempt
    @locked("x")
    def view(request: object) -> None: ...

    assert view.csrf_exempt
    assert "default" in view._non_atomic_requests


def test_a_streaming_response_is_refused(stall: str, atomic_requests: None) -> None:
    with pytest.raises(gripfast.ConfigurationError, match="made after the lock is released"):
        get("streamed", stall)
    assert notes() == []  # rolled back


# -- async -------------------------------------------------------------------------------------------------------------


def test_async_views_wait_and_refuse_in_the_same_way(stall: str) -> None:
    async def main() -> None:
        client = AsyncClient()
        assert (await client.get(f"/sell_async/{stall}")).json()["sold"] == 1
        async with async_lock(f"stall:{stall}", ttl=9):
            response = await client.get(f"/sell_async/{stall}")
            assert (response.status_code, int(response["Retry-After"]) <= 9) == (503, True)
        assert int((await client.get(f"/look_async/{stall}")).content) > 0
        assert (await client.get(f"/async_sale/{stall}")).json() == {"held": True}

    asyncio.run(main())


def test_async_views_stay_refused_with_atomic_requests(stall: str, atomic_requests: None) -> None:
    """By Django itself: the decorator must not hide it."""

    async def main() -> None:
        with pytest.raises(RuntimeError, match="ATOMIC_REQUESTS with async views"):
            await AsyncClient().get(f"/sell_async/{stall}")

    asyncio.run(main())


def test_an_async_busy_function_is_awaited() -> None:
    async def busy(error: gripfast.LockTimeout) -> str:
        return f"busy: {error.name}"

    @locked("async plain", busy=busy, wait=0)
    async def work() -> str:
        return "ran"

    async def main() -> None:
        assert await work() == "ran"
        async with async_lock("async plain"):
            assert await work() == "busy: async plain"

    asyncio.run(main())


# -- transactions ------------------------------------------------------------------------------------------------------


def test_with_atomic_requests_the_lock_is_still_held_at_the_commit(stall: str, atomic_requests: None) -> None:
    """The transaction is inside the lock (django-pglocks #15)."""
    assert get("is_free_inside", stall).json() == {"atomic": True, "held": True}
    assert notes() == ["inside", "locked at commit: True"]
    assert locks["default"].inspect(f"stall:{stall}") is None


def test_without_it_no_transaction_is_opened(stall: str) -> None:
    assert get("is_free_inside", stall).json() == {"atomic": False, "held": True}


@pytest.mark.parametrize("view", ["not_atomic_below", "not_atomic_above"])
def test_a_view_that_wants_no_transaction_gets_none(view: str, stall: str, atomic_requests: None) -> None:
    assert get(view, stall).json() == {"atomic": False}


@pytest.mark.parametrize("view", ["sale", "sale_by_view"])
def test_the_transaction_of_a_class_is_inside_the_lock(view: str, stall: str, atomic_requests: None) -> None:
    assert get(view, stall).json() == {"atomic": True, "held": True}


@pytest.mark.parametrize("view", ["sale_by_method", "locked_inside"])
def test_a_lock_inside_the_transaction_of_a_request_is_refused(view: str, stall: str, atomic_requests: None) -> None:
    with pytest.raises(gripfast.ConfigurationError, match=WORDS):
        get(view, stall)


def test_a_lock_inside_atomic_is_refused_unless_it_is_meant() -> None:
    with transaction.atomic():
        with pytest.raises(gripfast.ConfigurationError, match="open on the database 'default'"):
            lock("inside")
        with lock("inside", in_atomic=True):
            assert locks["default"].inspect("inside")
    with lock("inside"), transaction.atomic():
        pass


def test_an_exception_rolls_back_before_the_lock_is_released(stall: str, atomic_requests: None) -> None:
    with pytest.raises(gripfast.LeaseLost, match="broken"):
        get("loses_its_lock", stall)
    assert notes() == []


def test_of_two_locks_of_a_view_both_are_outside_of_its_transaction(atomic_requests: None) -> None:
    """And it is rolled back if the outer one is lost."""
    from bazaar.models import Note

    Note.objects.all().delete()
    told, requests = threading.Event(), RequestFactory()

    @locked("outer", ttl=3, on_lost=lambda *_: told.set())
    @locked("inner")
    def view(request: HttpRequest) -> HttpResponse:
        Note.objects.create(text="under two locks")
        if request.method == "POST":
            locks["default"].force_release("outer")
            assert told.wait(60)
        return HttpResponse(str(connections["default"].in_atomic_block))

    as_django_runs_it = BaseHandler().make_view_atomic(view)
    assert as_django_runs_it(requests.get("/")).content == b"True"
    with pytest.raises(gripfast.LeaseLost, match="'outer'"):
        as_django_runs_it(requests.post("/"))
    assert notes() == ["under two locks"]


def test_what_is_no_view_gets_no_transaction(atomic_requests: None) -> None:
    @locked("plain function")
    def work() -> bool:
        return bool(connections["default"].in_atomic_block)

    assert not work()


# -- classes -----------------------------------------------------------------------------------------------------------


def test_a_class_is_refused_with_what_to_decorate_instead() -> None:
    class Nightly(BaseCommand):
        def handle(self, **options: Any) -> None: ...

    class Page(View):
        async def get(self, request: HttpRequest) -> HttpResponse:
            return HttpResponse()

    class Other: ...

    with pytest.raises(gripfast.ConfigurationError, match=r"Nightly is a class: .*Decorate its method `handle`"):
        locked("nightly")(Nightly)
    with pytest.raises(gripfast.ConfigurationError, match=r'Page is a class: .*method_decorator.*name="dispatch"'):
        locked("page", busy=409)(Page)
    with pytest.raises(gripfast.ConfigurationError, match=r"Other is a class: .*Decorate its methods"):
        locked("other")(Other)


def test_an_object_with_an_address_in_memory_makes_no_name(stall: str) -> None:
    @locked("stall:{keeper}")
    def view(request: HttpRequest, keeper: object) -> HttpResponse:
        raise AssertionError("it ran")

    with pytest.raises(gripfast.ConfigurationError, match=r"\{keeper\.id\}"):
        view(RequestFactory().get("/"), keeper=object())
