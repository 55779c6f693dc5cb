"""The alert rules and the dashboard of docs/monitoring: promtool accepts them, and they ask for what there is."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from gripfast.observers.figures import METRICS, prometheus_label, prometheus_name
from quality.tree import ROOT
from support.pages import page

FOLDER = ROOT / "docs" / "monitoring"
SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "up_down": ("",)}
LABELS = {
    f"{prometheus_name(metric)}{suffix}": {prometheus_label(each) for each in metric.attributes}
    | ({"le"} if suffix == "_bucket" else set())
    for metric in METRICS
    for suffix in SUFFIXES[metric.kind]
}
"""Of each series that there is."""
WORDS = r"\b(?:gripfast|db|error)_\w+"


def rules() -> list[dict[str, Any]]:
    loaded = yaml.safe_load((FOLDER / "alerts.yml").read_text(encoding="utf-8"))
    return [rule for group in loaded["groups"] for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text(encoding="utf-8"))
    return loaded


def queries() -> list[str]:
    shown = [target["expr"] for panel in dashboard()["panels"] for target in panel["targets"]]
    return [rule["expr"] for rule in rules()] + shown


def strangers(query: str) -> set[str]:
    """Series that do not exist, and labels that the series of this query do not have."""
    words = set(re.findall(WORDS, re.sub(r'"[^"]*"', '""', query)))
    series = words & LABELS.keys()
    labels = set.union(set(), *(LABELS[each] for each in series))
    return words - series - labels if series else words | {"no series"}


def promtool(*words: str, folder: Path = FOLDER) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["promtool", *words], cwd=folder, capture_output=True, text=True, timeout=60)


def test_promtool_accepts_the_rules_and_their_tests() -> None:
    checked = promtool("check", "rules", "alerts.yml")
    assert checked.returncode == 0, checked.stderr
    tested = promtool("test", "rules", "alerts-test.yml")
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_every_rule_is_tested() -> None:
    tests = yaml.safe_load((FOLDER / "alerts-test.yml").read_text(encoding="utf-8"))["tests"]
    fired = {each["alertname"] for test in tests for each in test["alert_rule_test"] if each["exp_alerts"]}
    assert fired == {rule["alert"] for rule in rules()}


def test_a_planted_rule_fails_its_test(tmp_path: Path) -> None:
    planted = (
        (FOLDER / "alerts.yml").read_text(encoding="utf-8").replace("(gripfast_waiting) > 20", "(gripfast_held) > 20")
    )
    (tmp_path / "alerts.yml").write_text(planted, encoding="utf-8")
    (tmp_path / "alerts-test.yml").write_bytes((FOLDER / "alerts-test.yml").read_bytes())
    tested = promtool("test", "rules", "alerts-test.yml", folder=tmp_path)
    assert tested.returncode != 0
    assert "GripfastManyWaiters" in tested.stdout + tested.stderr


@pytest.mark.parametrize("query", queries())
def test_a_query_asks_for_series_and_labels_that_there_are(query: str) -> None:
    assert strangers(query) == set()


@pytest.mark.parametrize("query", ["sum(gripfast_lost_total)", "sum by (gripfast_request) (gripfast_held)", "up"])
def test_a_planted_query_is_found(query: str) -> None:
    assert strangers(query)


def test_promtool_can_read_the_queries_of_the_dashboard(tmp_path: Path) -> None:
    """With a time where Grafana puts one."""
    exprs = [re.sub(r"\$__\w+", "5m", query) for query in queries()]
    recorded = [{"record": f"query:{place}", "expr": expr} for place, expr in enumerate(exprs)]
    (tmp_path / "queries.yml").write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": recorded}]}))
    checked = promtool("check", "rules", "queries.yml", folder=tmp_path)
    assert checked.returncode == 0, checked.stderr


def test_every_metric_is_on_the_dashboard_but_the_margin_in_seconds() -> None:
    shown = " ".join(queries())
    missing = {prometheus_name(metric) for metric in METRICS if prometheus_name(metric) not in shown}
    assert missing == {"gripfast_renewal_margin_seconds"}


def test_panels_do_not_overlap() -> None:
    places = [panel["gridPos"] for panel in dashboard()["panels"]]
    cells = [(x, y) for p in places for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


def test_the_page_tells_of_every_metric_and_every_alert() -> None:
    text = page("observability")
    for metric in METRICS:
        assert f"| `{metric.name}`" in text
        assert f"`{prometheus_name(metric)}{'_total' if metric.kind == 'counter' else ''}`" in text
        assert all(f"`{each}`" in text for each in metric.attributes)
    assert all(f"`{rule['alert']}`" in text for rule in rules())
