"""Sells things: reads how many were sold, and writes one more. Without a lock, sales are lost."""

import os
from typing import Any

from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.utils.decorators import method_decorator
from django.views import View

from gripfast.contrib.django import async_lock, lock, locked, locks, within

from .models import Note, Stall


def sell_one(name: str) -> int:
    """In steps, so that others can come in between."""
    stall = Stall.objects.get(name=name)
    with connection.cursor() as cursor:  # some time at the server
        cursor.execute("SELECT pg_sleep(0.002)" if connection.vendor == "postgresql" else "SELECT 1")
    Stall.objects.filter(name=name).update(sold=stall.sold + 1)
    return stall.sold + 1


def answer(sold: int) -> JsonResponse:
    return JsonResponse({"pid": os.getpid(), "sold": sold})


@locked("stall:{name}", wait=60)
def sell(request: HttpRequest, name: str) -> HttpResponse:
    return answer(sell_one(name))


def sell_unlocked(request: HttpRequest, name: str) -> HttpResponse:
    return answer(sell_one(name))


def sell_within(request: HttpRequest, name: str) -> HttpResponse:
    with transaction.atomic():
        within(f"stall:{name}", using="rows")
        return answer(sell_one(name))


@locked("stall:{name}", busy=409)
def sell_or_refuse(request: HttpRequest, name: str) -> HttpResponse:
    return answer(sell_one(name))


@locked("stall:{name}", ttl=2, label="for ever")
def sell_for_ever(request: HttpRequest, name: str) -> HttpResponse:
    """Begins, and never ends."""
    Note.objects.create(text=f"begun by {os.getpid()}")
    return _never()


def _never() -> HttpResponse:
    import threading

    threading.Event().wait()
    raise AssertionError


@locked("stall:{name}", busy=503)
async def sell_async(request: HttpRequest, name: str) -> HttpResponse:
    stall = await Stall.objects.aget(name=name)
    await Stall.objects.filter(name=name).aupdate(sold=stall.sold + 1)
    return answer(stall.sold + 1)


async def look_async(request: HttpRequest, name: str) -> HttpResponse:
    async with async_lock(f"stall:{name}", wait=5) as lease:
        return HttpResponse(str(lease.token))


def locked_inside(request: HttpRequest, name: str) -> HttpResponse:
    with lock(f"stall:{name}"):
        return answer(sell_one(name))


@locked("stall:{name}")
def streamed(request: HttpRequest, name: str) -> StreamingHttpResponse:
    Note.objects.create(text="streamed")
    return StreamingHttpResponse(iter(["one", "two"]))


@locked("stall:{name}")
def is_free_inside(request: HttpRequest, name: str) -> HttpResponse:
    """Whether a transaction is open, and who else could have the lock."""
    Note.objects.create(text="inside")
    transaction.on_commit(lambda: Note.objects.create(text=f"locked at commit: {is_held(name)}"))
    return JsonResponse({"atomic": connection.in_atomic_block, "held": is_held(name)})


@locked("stall:{name}")
@transaction.non_atomic_requests
def not_atomic_below(request: HttpRequest, name: str) -> HttpResponse:
    return JsonResponse({"atomic": connection.in_atomic_block})


@transaction.non_atomic_requests
@locked("stall:{name}")
def not_atomic_above(request: HttpRequest, name: str) -> HttpResponse:
    return JsonResponse({"atomic": connection.in_atomic_block})


@locked("stall:{name}", ttl=30)
def loses_its_lock(request: HttpRequest, name: str) -> HttpResponse:
    """An operator breaks it in the middle; the view is told when it would commit."""
    import gripfast

    Note.objects.create(text="too late")
    locks["default"].force_release(f"stall:{name}")
    gripfast.current_lease(gripfast.Lease).lost.wait(30)
    return HttpResponse("done")


def is_held(name: str) -> bool:
    return locks["default"].inspect(f"stall:{name}") is not None


class Sale(View):
    @method_decorator(locked("stall:{name}", busy=409))
    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return super().dispatch(request, *args, **kwargs)

    def get(self, request: HttpRequest, name: str) -> HttpResponse:
        return JsonResponse({"atomic": connection.in_atomic_block, "held": is_held(name)})


class SaleByMethod(View):
    @method_decorator(locked("stall:{name}"))
    def get(self, request: HttpRequest, name: str) -> HttpResponse:
        return JsonResponse({"held": is_held(name)})


class PlainSale(View):
    """Knows nothing of locks; the address has one."""

    def get(self, request: HttpRequest, name: str) -> HttpResponse:
        return JsonResponse({"atomic": connection.in_atomic_block, "held": is_held(name)})


class AsyncSale(View):
    async def get(self, request: HttpRequest, name: str) -> HttpResponse:
        info = locks["default"].inspect(f"stall:{name}")
        return JsonResponse({"held": info is not None})
