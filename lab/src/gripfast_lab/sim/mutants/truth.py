"""Bugs in what callers are told."""

from __future__ import annotations

from gripfast.core import acquire, lease, notice, release
from gripfast_lab.sim.mutants.planting import Edit, Mutant

TRUTH = (
    Mutant(
        "in without the lock",
        "truth",
        "An attempt whose patience is over returns a lease all the same.",
        (
            Edit(
                acquire.acquire,
                "if isinstance(answer, Taken):",
                "answer = Granted(answer.token, want.ttl)\n            if isinstance(answer, Taken):",
            ),
        ),
    ),
    Mutant(
        "unreachable counts as taken",
        "truth",
        "A server that could not be reached is reported as a lock that somebody has.",
        (Edit(acquire._persist, "await patience.unreachable(answer, claim)", "return Taken(None, 0), sent"),),
    ),
    Mutant(
        "impatient with silence",
        "truth",
        "An attempt gives up on a silent server after one request, however long it may wait.",
        (Edit(acquire._Patience.check, "if not self.is_left():", "if True:"),),
    ),
    Mutant(
        "released after the server",
        "truth",
        "A lease counts as held until the server has confirmed its release.",
        (
            Edit(release.release, 'if not state.finish("released"):', "if state.ending is not None:"),
            Edit(
                release.release,
                "if answer is None:\n        if not want.is_lazy:",
                'state.finish("released")\n    if answer is None:\n        if not want.is_lazy:',
            ),
        ),
    ),
    Mutant(
        "loss not notified",
        "truth",
        "A holder is not notified of a loss: it finds out by a check, or at its release.",
        (Edit(notice.Notices._look, "_tell(self._env, state, reason)", "pass"),),
    ),
    Mutant(
        "release hides the loss",
        "truth",
        "A release says nothing of a lease that was lost before.",
        (
            Edit(release.release, "raise state.error()", "return"),
            Edit(release.release, "raise lease_lost(state.name, answer)", "return"),
        ),
    ),
    Mutant(
        "loss without end",
        "truth",
        "A lease whose deadline has passed may be held again.",
        (Edit(lease.LeaseState.remaining, 'self.finish("max_hold" if now >= self.limit else "expired")', "pass"),),
    ),
)
