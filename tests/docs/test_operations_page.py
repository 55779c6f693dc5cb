"""docs/operations.md: its drills print what it says, on real servers; it has a section for every alert, and every alert
names its section."""

import contextlib
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from gripfast.observers.figures import METRICS, prometheus_name
from observers.test_monitoring import rules
from support.pages import ROOT, blocks, is_as_told, page, run_typed, typed
from support.ports import give_back_port, reserved_port

PAGE = page("operations")
PREPARATION, *DRILLS = (typed(block) for block in blocks(PAGE, "console"))
PORTS = ("7379", "7380", "7381")


@contextlib.contextmanager
def ports_of_our_own() -> Iterator[dict[str, str]]:
    """By the page's."""
    ports = [reserved_port() for _ in PORTS]
    try:
        yield dict(zip(PORTS, map(str, ports), strict=True))
    finally:
        for port in ports:
            give_back_port(port)


def end_servers(folder: Path) -> None:
    """Those that still run; a server removes its file when it ends."""
    for path in folder.glob("*.pid"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(path.read_text()), signal.SIGKILL)


@pytest.mark.parametrize("drill", DRILLS, ids=lambda drill: drill[0][0][:40])
def test_a_drill_prints_what_the_page_says(drill: list[tuple[str, str]], tmp_path: Path) -> None:
    session = [*PREPARATION, *drill]
    with ports_of_our_own() as ports:

        def here(text: str) -> str:
            return re.sub("|".join(PORTS), lambda found: ports[found[0]], text)

        try:
            printed = run_typed([here(command) for command, _ in session], tmp_path)
        finally:
            end_servers(tmp_path)
    assert len(printed) == len(session)
    for (command, told), said in zip(session, printed, strict=True):
        assert is_as_told(said, here(told)), f"{command}\n{said}"


def test_every_alert_has_a_section_with_a_drill_and_links_to_it() -> None:
    for rule in rules():
        section = PAGE.partition(f"\n## {rule['alert']}\n")[2].partition("\n## ")[0]
        assert all(part in section for part in ("**It means:**", "**To do:**", "**Drill: ", "```console")), rule[
            "alert"
        ]
        assert rule["annotations"]["runbook"] == f"docs/operations.md#{rule['alert'].lower()}"


def test_the_command_of_the_other_page_makes_links_of_their_runbooks(tmp_path: Path) -> None:
    (command,) = (block for block in blocks(page("observability"), "sh") if "alerts.yml" in block)
    run_typed([f"cd {ROOT}", command.replace(">", f">{tmp_path}/")], tmp_path)
    made = yaml.safe_load((tmp_path / "gripfast-alerts.yml").read_text(encoding="utf-8"))["groups"][0]["rules"]
    links = [rule["annotations"]["runbook"] for rule in made]
    paths = [rule["annotations"]["runbook"] for rule in rules()]
    assert len(links) == len(paths) > 0
    assert [link.partition("/main/")[2] for link in links if link.startswith("https://")] == paths


def test_the_metrics_of_the_page_are_those_that_there_are() -> None:
    names = {f"{prometheus_name(metric)}{'_total' if metric.kind == 'counter' else ''}" for metric in METRICS}
    watched = set(re.findall(r"`(gripfast_\w+)`", PAGE.partition("## What to watch")[2].partition("\n## ")[0]))
    assert watched == names - {"gripfast_renewal_margin_seconds"}
