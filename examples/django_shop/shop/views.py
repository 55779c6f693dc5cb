from django.db import transaction
from django.http import JsonResponse

from gripfast.contrib.django import async_lock, locked, within

from .models import Item


@locked("item:{name}", busy=409)
def sell(request, name):
    item = Item.objects.get(name=name)
    if item.stock == 0:
        return JsonResponse({"sold": False})
    item.stock -= 1
    item.save()
    return JsonResponse({"sold": True, "left": item.stock})


@transaction.atomic
def reserve(name):
    within(f"item:{name}", using="rows", wait=5)  # held until the commit
    item = Item.objects.get(name=name)
    item.stock -= 1
    item.save()


@transaction.non_atomic_requests
async def report(request):
    async with async_lock("report", wait=10) as lease:
        return JsonResponse({"items": await Item.objects.acount(), "token": lease.token})
