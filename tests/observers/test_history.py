"""The metrics of a history that is played on a store are exactly those that it should have."""

from __future__ import annotations

import asyncio
import math
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

import gripfast
from gripfast.observers.figures import PARTS, SECONDS
from gripfast.testing.observing import Recorder
from observers.reading import Figures, OpenTelemetry, Prometheus, Told
from support.colours import COLOURS, World
from support.redis_server import RedisServer
from support.waiting import auntil


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


class Stage:
    """An actor whose client has all observers, and somebody else."""

    def __init__(self, url: str, colour: str) -> None:
        self.seen, self.otel, self.prometheus = Recorder(), OpenTelemetry(), Prometheus()
        self.world = World(url, COLOURS[colour])
        observers = [self.otel.observer, self.prometheus.observer, self.seen]  # the last one is told last
        self.alice = self.world.actor(observers=observers, request_timeout=1.0)
        self.bob = self.world.actor()

    async def told(self, name: str, kind: str, count: int = 1) -> None:
        await auntil(lambda: len(self.seen.of(name, kind)) >= count, within=20)

    async def granted(self) -> None:
        for _ in range(3):
            await self.alice.release(await self.alice.acquire("free", group="jobs"))
        await self.told("free", "released", 3)

    async def refused_and_timed_out(self) -> None:
        """Then granted after a wait."""
        lease = await self.bob.acquire("busy")
        assert await self.alice.try_acquire("busy", group="jobs") is None
        with pytest.raises(gripfast.LockTimeout):
            await self.alice.acquire("busy", wait=0.05, group="jobs")
        waiting = self.alice.acquire("busy", group="jobs")
        await self.world.queued("busy", 1)
        await self.told("busy", "claimed", 3)
        assert self.figure("gripfast_waiting", "jobs") == [1, 1]
        await self.bob.release(lease)
        got = await waiting
        await self.told("busy", "granted")
        assert self.figure("gripfast_waiting", "jobs") == [0, 0]
        assert self.figure("gripfast_held", "jobs") == [1, 1]
        await self.alice.release(got)
        await self.told("busy", "released")

    async def lost(self) -> None:
        """To max_hold, to its deadline, and to an operator."""
        await self.alice.acquire("held too long", group="risky", max_hold=0.05)
        await self.alice.acquire("not renewed", group="risky", ttl=0.3, renew=False)
        await self.alice.acquire("broken", group="risky", ttl=0.6)
        await self.bob.force_release("broken", "an operator")
        for name in ("held too long", "not renewed", "broken"):
            await self.told(name, "lost")

    def figure(self, name: str, group: str) -> list[Any]:
        """According to both."""
        figures = self.otel.figures(), self.prometheus.figures()
        return [each.get((name, *key), 0) for each in figures for key in [(self.alice.client._config.kind, group)]]

    def of(self, *names: str, kinds: tuple[str, ...]) -> list[gripfast.Event]:
        return [each for each in self.seen.events if each.name in names and each.kind in kinds]


def histogram(values: list[float], bounds: tuple[float, ...] = SECONDS) -> Told:
    return Told(len(values), math.fsum(values), tuple(sum(value <= bound for value in values) for bound in bounds))


def rounded(figures: Figures) -> Figures:
    """Sums of the same numbers differ in the last digits."""
    return {
        key: value._replace(sum=round(value.sum, 9)) if isinstance(value, Told) else value
        for key, value in figures.items()
    }


def by_hand(stage: Stage, system: str) -> Figures:
    """What the history above comes to: counts as they stand there, and times as the events have them."""

    def waits(*events: gripfast.Event) -> Told:
        return histogram([each.waited for each in events])

    refused, timed_out = stage.of("busy", kinds=("refused",))
    risky = ("held too long", "not renewed", "broken")
    ended = stage.of("free", "busy", kinds=("released",))
    jobs, risk = (system, "jobs"), (system, "risky")
    return {
        ("gripfast_acquisitions", *jobs, "granted"): 4,
        ("gripfast_acquisitions", *jobs, "refused"): 1,
        ("gripfast_acquisitions", *jobs, "timeout"): 1,
        ("gripfast_acquisitions", *risk, "granted"): 3,
        ("gripfast_losses", *risk, "max_hold"): 1,
        ("gripfast_losses", *risk, "expired"): 1,
        ("gripfast_losses", *risk, "broken"): 1,
        ("gripfast_wait_duration_seconds", *jobs, "granted"): waits(*stage.of("free", "busy", kinds=("granted",))),
        ("gripfast_wait_duration_seconds", *jobs, "refused"): waits(refused),
        ("gripfast_wait_duration_seconds", *jobs, "timeout"): waits(timed_out),
        ("gripfast_wait_duration_seconds", *risk, "granted"): waits(*stage.of(*risky, kinds=("granted",))),
        ("gripfast_hold_duration_seconds", *jobs): histogram([each.held for each in ended]),
        ("gripfast_hold_duration_seconds", *risk): histogram([each.held for each in stage.of(*risky, kinds=("lost",))]),
    }


def without_renewals(figures: Figures) -> Figures:
    """They come when they come."""
    return {key: value for key, value in figures.items() if not key[0].startswith("gripfast_renewal")}


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("system", ["memory", "redis"])
def test_a_history_is_counted_exactly(system: str, colour: str, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue("server").url if system == "redis" else f"memory://{uuid.uuid4().hex}"

    async def play() -> None:
        stage = Stage(url, colour)
        try:
            await stage.granted()
            await stage.refused_and_timed_out()
            await stage.lost()
        finally:
            await stage.world.close()
        expected = rounded(by_hand(stage, system))
        assert rounded(without_renewals(stage.prometheus.figures())) == expected
        assert rounded(without_renewals(stage.otel.figures())) == expected

    asyncio.run(play())


@pytest.mark.parametrize("colour", COLOURS)
def test_a_late_renewal_is_seen_in_its_margin(colour: str, server: RedisServer) -> None:
    async def play() -> None:
        stage = Stage(server.url, colour)
        try:
            lease = await stage.alice.acquire("late", group="jobs", ttl=6)
            server.pause()
            try:
                await auntil(lambda: lease.remaining() < 2.9, within=20)
            finally:
                server.resume()
            await stage.told("late", "renewed")
            await stage.alice.release(lease)
        finally:
            await stage.world.close()
        margins = [each.margin for each in stage.of("late", kinds=("renewed",))]
        assert 0.0 < margins[0] < 2.9
        key = "redis", "jobs"
        for figures in map(rounded, (stage.otel.figures(), stage.prometheus.figures())):
            assert figures["gripfast_renewal_margin_seconds", *key] == rounded({("",): histogram(margins)})[("",)]
            parts = [margin / 6 for margin in margins]
            assert figures["gripfast_renewal_margin_ratio", *key] == rounded({("",): histogram(parts, PARTS)})[("",)]
            failed = [value for name, value in figures.items() if name[:4] == ("gripfast_unreachable", *key, "renew")]
            assert sum(failed) == len(stage.of("late", kinds=("unreachable",)))

    asyncio.run(play())


@pytest.mark.parametrize("colour", COLOURS)
def test_losses_to_another_holder_and_claims_that_reach_no_store_are_counted(colour: str, server: RedisServer) -> None:
    async def play() -> None:
        stage = Stage(server.url, colour)
        try:
            await stage.alice.acquire("stolen", group="jobs", ttl=1.5)
            with server.client() as other:
                assert other.set(stage.alice.client._key("stolen"), "somebody else", xx=True)
            await stage.told("stolen", "lost")
            server.stop()
            with pytest.raises(gripfast.StoreUnavailable):
                await stage.alice.try_acquire("gone", group="jobs")
            await stage.told("gone", "unreachable")
        finally:
            await stage.world.close()
        for figures in (stage.otel.figures(), stage.prometheus.figures()):
            assert figures["gripfast_losses", "redis", "jobs", "taken"] == 1
            assert figures["gripfast_acquisitions", "redis", "jobs", "unreachable"] == 1
            assert figures["gripfast_unreachable", "redis", "jobs", "claim", "StoreUnavailable"] == 1
            assert ("gripfast_held", "redis", "jobs") not in figures
            assert ("gripfast_waiting", "redis", "jobs") not in figures

    asyncio.run(play())
