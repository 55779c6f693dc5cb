"""The observers of commands: `--otel` and $GRIPFAST_OBSERVERS."""

from __future__ import annotations

import importlib.metadata
import json
import re
import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from types import ModuleType

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.multiprocess import MultiProcessCollector

import gripfast
from cli.commandline import Call, run_gripfast
from gripfast.cli.observers import GROUP, OWN
from gripfast.testing.observing import Recorder
from quality.tree import ROOT

RUN = ["run", "nightly", "--group", "jobs", "--", "true"]


def test_events_are_printed(url: str) -> None:
    ended = run_gripfast(*RUN, env={"GRIPFAST_OBSERVERS": "logging"})
    assert ended.returncode == 0
    said = [re.sub(r"\d+\.\d+|\d{9,}", "…", line) for line in ended.stderr.splitlines()]
    assert said == [
        "gripfast: granted 'nightly' after … s, token …",
        "gripfast: released 'nightly' after … s",
    ]


@pytest.mark.parametrize("how", ["option", "variable", "both"])
def test_metrics_and_spans_are_sent_before_the_command_ends(url: str, how: str) -> None:
    names = {"GRIPFAST_OBSERVERS": " otel, "} if how != "option" else {}
    flags = ["--otel"] if how != "variable" else []
    env = {"OTEL_METRICS_EXPORTER": "console", "OTEL_TRACES_EXPORTER": "console", **names}
    ended = run_gripfast("run", *flags, *RUN[1:], env=env)
    assert (ended.returncode, ended.stderr) == (0, "")
    sent = json.loads(ended.stdout)["resource_metrics"][0]["scope_metrics"][0]["metrics"]
    (point,) = next(each for each in sent if each["name"] == "gripfast.acquisitions")["data"]["data_points"]
    assert point["value"] == 1
    about = {"db.system.name": "sqlite", "gripfast.group": "jobs", "gripfast.outcome": "granted"}
    assert point["attributes"] == about


def test_files_for_prometheus_have_what_commands_did(url: str, tmp_path: Path) -> None:
    folder = tmp_path / "metrics"
    folder.mkdir()
    env = {"GRIPFAST_OBSERVERS": "prometheus", "PROMETHEUS_MULTIPROC_DIR": str(folder)}
    for _ in range(2):
        assert run_gripfast(*RUN, env=env).returncode == 0
    registry = CollectorRegistry()
    MultiProcessCollector(registry, str(folder))
    about = {"db_system_name": "sqlite", "gripfast_group": "jobs", "gripfast_outcome": "granted"}
    assert registry.get_sample_value("gripfast_acquisitions_total", about) == 2
    assert not list(folder.glob("gauge_live*"))  # of processes that are gone


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("statsd", "there is no observer 'statsd': $GRIPFAST_OBSERVERS may name logging, otel, prometheus"),
        ("prometheus", "set $PROMETHEUS_MULTIPROC_DIR"),
    ],
)
def test_what_can_t_be_used_is_told_before_anything_is_acquired(
    name: str, message: str, url: str, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRIPFAST_OBSERVERS", name)
    monkeypatch.delenv("PROMETHEUS_MULTIPROC_DIR", raising=False)
    for command in (["ls"], ["show", "nightly"], ["wait", "nightly"], ["acquire", "nightly"], RUN):
        ended = call(*command)
        assert (ended.returncode, ended.stdout) == (64, "")
        assert message in ended.stderr


@pytest.mark.parametrize(
    ("name", "package", "extra"), [("otel", "opentelemetry", "otel"), ("prometheus", "prometheus_client", "prometheus")]
)
def test_the_line_that_installs_a_missing_library_is_told(
    name: str, package: str, extra: str, url: str, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRIPFAST_OBSERVERS", name)
    monkeypatch.delitem(sys.modules, f"gripfast.observers.{name}", raising=False)
    for module in [each for each in sys.modules if each.split(".")[0] == package] or [package]:
        monkeypatch.setitem(sys.modules, module, None)
    ended = call("ls")
    assert ended.returncode == 64
    assert f"pip install 'gripfast[{extra}]'" in ended.stderr


def test_without_the_sdk_the_command_says_that_nothing_would_be_sent(
    url: str, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk._configuration", None)
    monkeypatch.setenv("GRIPFAST_OBSERVERS", "otel")
    ended = call("ls")
    assert (ended.returncode, ended.stdout) == (64, "")
    assert "pip install opentelemetry-sdk" in ended.stderr


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """An observer of another package, `record`; and `broken`, which can't be made."""
    seen, module = Recorder(), ModuleType("recording")
    module.record = lambda: seen  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "recording", module)
    there = EntryPoints(EntryPoint(name, f"recording:{name}", GROUP) for name in ("record", "broken"))
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **which: there.select(**which))
    monkeypatch.setenv("GRIPFAST_OBSERVERS", "record")
    return seen


def test_the_observer_of_another_package_is_used(recorder: Recorder, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from gripfast.cli.app import cli
    from gripfast.cli.options import open_client

    with cli.make_context("gripfast", ["ls"]) as ctx, open_client(ctx) as client, client.lock("nightly"):
        pass
    assert recorder.kinds("nightly") == ["claimed", "granted", "released"]


def test_one_that_is_broken_is_told(recorder: Recorder, url: str, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRIPFAST_OBSERVERS", "broken")
    ended = call("ls")
    assert ended.returncode == 64
    assert "can't use the observer broken: recording:broken raised AttributeError" in ended.stderr


def test_the_variable_is_for_commands_alone(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRIPFAST_OBSERVERS", "statsd")
    with gripfast.connect(url) as client, client.lock("nightly"):
        assert client._config.observers == ()


def test_our_own_observers_are_entry_points_too() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    section = text.partition(f'[project.entry-points."{GROUP}"]\n')[2].partition("\n\n")[0]
    assert dict(line.replace('"', "").split(" = ") for line in section.splitlines()) == OWN
