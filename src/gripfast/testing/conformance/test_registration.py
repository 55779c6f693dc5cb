"""A store is what its spec says, and whoever knows its URL can use it."""

from click.testing import CliRunner

import gripfast
from gripfast.cli.app import cli
from gripfast.stores import schemes, spec_for


def test_the_spec_is_found_by_the_scheme(url: str) -> None:
    scheme = url.partition("://")[0]
    assert scheme in spec_for(scheme).schemes
    assert f"{scheme}://" in schemes()


def test_capabilities_are_those_of_the_spec(url: str) -> None:
    promised = spec_for(url.partition("://")[0]).capabilities
    with gripfast.connect(url) as client:
        assert promised in (None, client.capabilities)


def test_a_lock_is_shown_on_the_command_line(url: str) -> None:
    with gripfast.connect(url) as client, client.lock("job", label="nightly"):
        shown = CliRunner().invoke(cli, ["show", "job", "--url", url])
    assert (shown.exit_code, "nightly" in shown.output) == (0, True)
