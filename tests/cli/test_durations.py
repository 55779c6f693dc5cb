"""One grammar of durations, for flags and for the options of URLs."""

import json

import pytest

import gripfast
from cli.commandline import Call, run_gripfast
from gripfast.cli.commands import OWN
from gripfast.durations import read

RIGHT = {
    "30": 30.0,
    "0": 0.0,
    "1.5": 1.5,
    "1.5s": 1.5,
    "500ms": 0.5,
    "700ms": 0.7,
    "2m": 120.0,
    "0.5h": 1800.0,
    "1h": 3600.0,
    "7d": 604800.0,
}
WRONG = ["", " ", "soon", "-1", "+1", "1e3", "inf", "nan", "30 s", "30S", "1m30s", ".5", "5.", "1w", "1y", "10us", "٣"]


@pytest.mark.parametrize(("text", "seconds"), RIGHT.items())
def test_a_duration_is_read(text: str, seconds: float) -> None:
    assert read(text) == seconds


@pytest.mark.parametrize("text", WRONG)
def test_anything_else_is_refused_with_what_there_is(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be a duration like 30 \(seconds\), 1.5s, 500ms, 2m, 1h or 7d") as told:
        read(text)
    assert repr(text) in str(told.value)


def test_urls_have_it() -> None:
    with gripfast.connect("memory://?ttl=2m") as client:
        assert client.lock("job").ttl == 120.0
    with pytest.raises(gripfast.ConfigurationError, match=r"ttl must be a duration like .* not '2 minutes'"):
        gripfast.connect("memory://?ttl=2 minutes")


def test_flags_have_it(client: gripfast.Client, call: Call) -> None:
    with client.lock("nightly").acquire():
        ended = run_gripfast("wait", "nightly", "--wait", "200ms", "--json")  # 200 s would be too long for this call
    assert ended.returncode == 75
    assert 0.2 <= json.loads(ended.stdout)["waited"] < 10
    refused = call("wait", "nightly", "--wait", "soon")
    assert refused.returncode == 64
    assert "'--wait': must be a duration like 30 (seconds), 1.5s, 500ms, 2m, 1h or 7d, not 'soon'." in refused.stderr
    assert "too long" in call("wait", "nightly", "--wait", "9" * 400).stderr


@pytest.mark.parametrize("args", [[], *([command] for command in OWN)], ids=" ".join)
def test_h_is_help(args: list[str], call: Call) -> None:
    told = call(*args, "-h")
    assert (told.returncode, told.stderr) == (0, "")
    assert told == call(*args, "--help")
    assert "-h, --help" in told.stdout


def test_h_of_the_command_that_is_run_is_its_own() -> None:
    assert run_gripfast("run", "nightly", "--", "test", "-h", "/nowhere").returncode == 1
