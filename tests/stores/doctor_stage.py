"""What the tests of `gripfast doctor` have in common: a deployment by its URL, and what is found there."""

from unittest import mock

from gripfast.api import doctor
from gripfast.api.config import configure
from gripfast.api.doctor import Report
from gripfast.stores.doctor import Finding


def report_on(url: str) -> Report:
    """Few pairs are timed: `tests/cli/test_doctor.py` is about latency."""
    with mock.patch.object(doctor, "PAIRS_LEAST", 3), mock.patch.object(doctor, "SECONDS_MOST", 0.0):
        return doctor.examine(configure(url, {}))


def found(url: str) -> dict[str, Finding]:
    """By the name of the check."""
    return by_name(report_on(url).findings)


def by_name(findings: "tuple[Finding, ...] | list[Finding]") -> dict[str, Finding]:
    return {finding.name: finding for finding in findings}


def problems(url: str) -> list[str]:
    """In words, for a message of pytest."""
    return [f"{each.name}: {each.what}" for each in report_on(url).findings if each.kind == "problem"]
