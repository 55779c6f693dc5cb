"""What the tests of `gripfast doctor` have in common: a deployment by its URL, and what is found there."""

from gripfast.api.config import configure
from gripfast.api.doctor import Report, examine
from gripfast.stores.doctor import Finding


def report_on(url: str) -> Report:
    return examine(configure(url, {}))


def found(url: str) -> dict[str, Finding]:
    """By the name of the check."""
    return by_name(report_on(url).findings)


def by_name(findings: "tuple[Finding, ...] | list[Finding]") -> dict[str, Finding]:
    return {finding.name: finding for finding in findings}


def problems(url: str) -> list[str]:
    """In words, for a message of pytest."""
    return [f"{each.name}: {each.what}" for each in report_on(url).findings if each.kind == "problem"]
