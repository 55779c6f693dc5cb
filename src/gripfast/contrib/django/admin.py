"""The admin's page of held locks, the same rows as in `gripfast top`; and the question before one is broken.

Who may look has the permission `gripfast.view_heldlock`, who may break has `gripfast.break_heldlock`. A break is a POST
of the admin's own, with its CSRF token, and only hits the holders that the page has shown. `breaking.py` records it.

Names, labels, hosts and owners are texts that somebody else has chosen. They are made visible here, and the templates
escape them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from django.contrib import admin, messages
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.http import urlencode

from gripfast.api.rows import ORDERS, Holder, Row, look_up, matching, ordered, scan
from gripfast.cli.text import expires_in, held_for, occupant
from gripfast.contrib.django.breaking import REASON_MOST, break_recorded
from gripfast.contrib.django.clients import DEFAULT, locks
from gripfast.contrib.django.models import HeldLock
from gripfast.contrib.django.transactions import EveryAlias
from gripfast.errors import GripfastError, visible

ROWS_MOST = 500
"""On one page; a filter finds the others."""
KINDS = ("lock", "semaphore", "rwlock")


class ShownHolder(NamedTuple):
    who: str
    label: str
    held_for: str
    expires_in: str
    token: int
    owner: str


class ShownRow(NamedTuple):
    """As the templates show it: all that is not visible in a text is told by its number."""

    name: str
    kind: str
    holders: Sequence[ShownHolder]
    waiters: str
    link: str
    """To the question before it is broken."""


@admin.register(HeldLock)
class HeldLockAdmin(admin.ModelAdmin):
    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    def has_break_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("gripfast.break_heldlock"))

    def get_urls(self) -> list[Any]:
        """None of the pages that need a table."""
        wrap = self.admin_site.admin_view
        return [
            path("", wrap(self.changelist_view), name="gripfast_heldlock_changelist"),
            path("break/", wrap(_not_atomic(self.break_view)), name="gripfast_heldlock_break"),
        ]

    # -- the list --------------------------------------------------------------------------------------------------

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        using, text = request.GET.get("using", DEFAULT), visible(request.GET.get("q", ""))
        order = request.GET.get("o", "name")
        context = {**self._context(request, using), "q": text, "o": order, "orders": list(ORDERS)}
        try:
            found = scan(_client(using))
        except GripfastError as error:
            return self._page(request, "change_list", {**context, "failure": visible(str(error))})
        rows = ordered(matching(found.rows, text), order if order in ORDERS else "name")
        shown = [self._shown(row, using) for row in rows[:ROWS_MOST]]
        context |= {"rows": shown, "more": len(rows) - len(shown), "notes": found.notes, "where": visible(found.where)}
        return self._page(request, "change_list", context | (extra_context or {}))

    def _shown(self, row: Row, using: str) -> ShownRow:
        query = urlencode({"using": using, "kind": row.kind, "name": row.name})
        kind = f"{row.kind} ({row.mode})" if row.mode else row.kind
        link = f"{reverse(f'{self.admin_site.name}:gripfast_heldlock_break')}?{query}"
        return ShownRow(visible(row.name), kind, [_shown_holder(each) for each in row.holders], row.waiting, link)

    # -- the question, and the break -------------------------------------------------------------------------------

    def break_view(self, request: HttpRequest) -> HttpResponse:
        if not (self.has_view_permission(request) and self.has_break_permission(request)):
            raise PermissionDenied
        given = request.GET  # of a POST, too: an address keeps a text as it is, and a form changes its ends of lines
        using, kind, name = given.get("using", DEFAULT), given.get("kind", "lock"), given.get("name", "")
        if kind not in KINDS or not name:
            raise Http404
        try:
            row = look_up(_client(using), kind, name)
            if row is not None and request.method == "POST":
                return self._break(request, using, row)
        except GripfastError as error:
            self.message_user(request, visible(str(error)), messages.ERROR)
            return self._back(using)
        if row is None:
            self.message_user(request, f"Nobody holds {visible(name)!r} any more.", messages.WARNING)
            return self._back(using)
        context = {"row": self._shown(row, using), "reason_most": REASON_MOST}
        return self._page(request, "break_confirmation", {**self._context(request, using), **context})

    def _break(self, request: HttpRequest, using: str, row: Row) -> HttpResponse:
        """Only the holders that the page has shown: who came later was not meant."""
        meant = set(request.POST.getlist("owner"))
        holders = tuple(each for each in row.holders if visible(each.owner) in meant)
        reason = request.POST.get("reason", "")
        if not holders:
            self.message_user(
                request, f"{visible(row.name)!r} has another holder by now: look again.", messages.WARNING
            )
            return self._back(using)
        if break_recorded(request.user, using, row, holders, reason, "in the admin"):
            self.message_user(request, f"{visible(row.name)!r} is released. Its holder may still be at work.")
        else:
            changed = f"Nothing was released: the holder of {visible(row.name)!r} has changed. Look again."
            self.message_user(request, changed, messages.WARNING)
        return self._back(using)

    # -- pages -----------------------------------------------------------------------------------------------------

    def _context(self, request: HttpRequest, using: str) -> dict[str, Any]:
        aliases = list(locks)
        if using not in aliases:
            raise Http404
        known: dict[str, Any] = self.admin_site.each_context(request)
        may_break = self.has_break_permission(request)
        return known | {
            "title": "Held locks",
            "opts": self.opts,
            "using": using,
            "aliases": aliases,
            "may_break": may_break,
        }

    def _page(self, request: HttpRequest, template: str, context: dict[str, Any]) -> HttpResponse:
        request.current_app = self.admin_site.name
        return TemplateResponse(request, f"admin/gripfast/heldlock/{template}.html", context)

    def _back(self, using: str) -> HttpResponse:
        url = reverse(f"{self.admin_site.name}:gripfast_heldlock_changelist")
        return HttpResponseRedirect(f"{url}?{urlencode({'using': using})}")


def _not_atomic(view: Any) -> Any:
    """With ATOMIC_REQUESTS the record of a break would only be there after the break, or not at all."""

    def run(request: HttpRequest) -> HttpResponse:
        response: HttpResponse = view(request)
        return response

    run._non_atomic_requests = EveryAlias(set())  # type: ignore[attr-defined]
    return run


def _client(using: str) -> Any:
    try:
        return locks[using]
    except ImproperlyConfigured:
        raise Http404 from None


def _shown_holder(each: Holder) -> ShownHolder:
    label = visible(each.label or "")
    return ShownHolder(occupant(each), label, held_for(each), expires_in(each), each.token, visible(each.owner))
