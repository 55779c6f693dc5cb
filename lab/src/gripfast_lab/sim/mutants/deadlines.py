"""Bugs in until when a lease is believed in."""

from __future__ import annotations

from gripfast.core import acquire, lease, rules
from gripfast.stores.redis import protocol
from gripfast_lab.sim.mutants.planting import Edit, Mutant

DEADLINES = (
    Mutant(
        "dated by the reply",
        "deadlines",
        "A grant is dated by the moment when its reply came, not by the moment before its request left.",
        (Edit(acquire.acquire, "answer.ttl, sent, env.now()", "answer.ttl, env.now(), env.now()"),),
    ),
    Mutant(
        "no drift",
        "deadlines",
        "A deadline has no reserve for clocks that run at different rates, nor for coarse ones.",
        (Edit(rules.dates, " - (CLOCK_RATES * ttl + CLOCK_GRAIN)", ""),),
    ),
    Mutant(
        "deadline not checked",
        "deadlines",
        "A lease counts as held although its deadline has passed.",
        (Edit(lease.LeaseState.remaining, "left = self.deadline - now", "left = self.ttl"),),
    ),
    Mutant(
        "whole seconds",
        "deadlines",
        "The server is given a ttl in whole seconds, rounded down.",
        (Edit(protocol.times, "math.ceil(ttl * 1000)", "max(1, int(ttl)) * 1000"),),
    ),
    Mutant(
        "push dated by its arrival",
        "deadlines",
        "A pushed grant is dated by its arrival, although it was made long before if the push was slow.",
        (Edit(acquire._persist, "return pushed, sent", "return pushed, env.now()"),),
    ),
    Mutant(
        "push for the whole ttl",
        "deadlines",
        "A pushed grant is believed to be for the ttl that was requested, although a push may bring less.",
        (Edit(acquire.acquire, "answer.token, answer.ttl,", "answer.token, want.ttl,"),),
    ),
    Mutant(
        "expired grant returned",
        "deadlines",
        "A grant whose deadline has passed by the time of its reply is returned as held.",
        (Edit(acquire.acquire, "want.max_hold):", "want.max_hold) or True:"),),
    ),
    Mutant(
        "max_hold not checked",
        "deadlines",
        "A lease is renewed past its max_hold.",
        (Edit(lease.LeaseState.grant, "deadline if deadline < self.limit else self.limit", "deadline"),),
    ),
)
