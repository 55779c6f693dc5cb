"""The app: `"gripfast.contrib.django"` in `INSTALLED_APPS`. Its label is `gripfast`."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class GripfastConfig(AppConfig):
    name = "gripfast.contrib.django"
    label = "gripfast"
    verbose_name = _("Locks")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from gripfast.contrib.django import checks

        checks.register()
