"""What permissions, the admin and its history call a lock. There is no table behind it: locks are in their stores.

`manage.py dumpdata` reads all models, also those without a table. So its managers find nothing, without a query.
"""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class _Nothing(models.Manager["HeldLock"]):
    def get_queryset(self) -> models.QuerySet[HeldLock]:
        return super().get_queryset().none()


class HeldLock(models.Model):
    objects = _Nothing()

    class Meta:
        managed = False
        base_manager_name = "objects"
        default_permissions = ("view",)
        permissions = (("break_heldlock", "Can break held lock"),)
        verbose_name = _("held lock")
        verbose_name_plural = _("held locks")
