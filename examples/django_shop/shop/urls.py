from django.urls import path

from . import views

urlpatterns = [path("sell/<name>", views.sell), path("report", views.report)]
