"""Every view below its name."""

from django.apps import apps
from django.urls import path

from gripfast.contrib.django import locked

from . import views

urlpatterns = [
    path("sell/<name>", views.sell),
    path("sell_unlocked/<name>", views.sell_unlocked),
    path("sell_within/<name>", views.sell_within),
    path("sell_or_refuse/<name>", views.sell_or_refuse),
    path("sell_for_ever/<name>", views.sell_for_ever),
    path("sell_async/<name>", views.sell_async),
    path("look_async/<name>", views.look_async),
    path("locked_inside/<name>", views.locked_inside),
    path("streamed/<name>", views.streamed),
    path("is_free_inside/<name>", views.is_free_inside),
    path("not_atomic_below/<name>", views.not_atomic_below),
    path("not_atomic_above/<name>", views.not_atomic_above),
    path("loses_its_lock/<name>", views.loses_its_lock),
    path("sale/<name>", views.Sale.as_view()),
    path("sale_by_method/<name>", views.SaleByMethod.as_view()),
    path("sale_by_view/<name>", locked("stall:{name}")(views.PlainSale.as_view())),
    path("async_sale/<name>", locked("stall:{name}")(views.AsyncSale.as_view())),
]
if apps.is_installed("django.contrib.admin"):
    from django.contrib import admin

    urlpatterns.append(path("admin/", admin.site.urls))
