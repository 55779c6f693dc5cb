"""Bugs in releases whose answers nobody waits for."""

from __future__ import annotations

from gripfast.core import lazy, upkeep
from gripfast.core.ledger import Ledger
from gripfast.stores.redis.unread import Book, Unread
from gripfast_lab.sim.mutants.planting import Edit, Mutant

LAZY = (
    Mutant(
        "own attempt overtakes the release",
        "lazy",
        "While a release is unread, the next attempt of the same client takes another connection.",
        (Edit(Book.find, "return None if unread is None else unread.parked()", "return None"),),
    ),
    Mutant(
        "forgotten release counts as done",
        "lazy",
        "A release that the server refused, because it had forgotten the script, is not sent again.",
        (
            Edit(Unread.take, "if protocol.forgot_script(reply) and not self.was_forgotten:", "if False:"),
            Edit(Unread.take, "if isinstance(reply, int) or protocol.is_no_lock(reply):", "if True:"),
        ),
    ),
    Mutant(
        "owner forgotten before the answer",
        "lazy",
        "When a release has left, its owner is struck off the ledger, before the answer is read.",
        (
            Edit(
                lazy.release_lazily,
                "env.look_at(env.now() + rules.READ_LATE)",
                "env.ledger.confirm_gone(state.owner)",
            ),
        ),
    ),
    Mutant(
        "lost release forgotten",
        "lazy",
        "When the answer to a release is lost with its connection, nobody cleans up.",
        (Edit(Ledger.inherit, "mark = Mark(heir, self._drop)", "mark = Mark(heir)"),),
    ),
    Mutant(
        "watchdog reads no answers",
        "lazy",
        "Nobody reads the answer to a release unless the client has another request.",
        (Edit(upkeep.Upkeep._read_late, "if self._lazy is None or not await self._lazy.read_late():", "if True:"),),
    ),
)
