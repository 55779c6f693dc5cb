"""`gripfast acquire`, `renew` and `release`."""

from pathlib import Path

import pytest

import gripfast
from cli.commandline import Call, run_gripfast
from support.waiting import until

pytestmark = pytest.mark.usefixtures("url")


def acquired(*options: str) -> str:
    ended = run_gripfast("acquire", "deploy", *options)
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


def test_an_acquired_lock_is_held_after_its_process_has_ended(client: gripfast.Client) -> None:
    text = acquired("--ttl", "10m", "--label", "by hand")
    assert text.count("\n") == 1
    info = client.inspect("deploy")
    assert info is not None
    assert info.label == "by hand"
    assert 500 < info.expires_in <= 600
    assert client.lock("deploy").try_acquire() is None
    released = run_gripfast("release", "-", stdin=text)
    assert (released.returncode, released.stdout, released.stderr) == (0, "", "")
    assert client.inspect("deploy") is None
    again = run_gripfast("release", "-", stdin=text)
    assert again.returncode == 76
    assert "lost the lock 'deploy'" in again.stderr
    assert "its lease has expired, or was released or adopted before" in again.stderr


def test_a_lock_is_renewed_by_its_text_again_and_again(client: gripfast.Client) -> None:
    text = acquired("--ttl", "20")
    for ttl in ("10m", "20m"):
        assert run_gripfast("renew", "-", "--ttl", ttl, stdin=text).returncode == 0
    info = client.inspect("deploy")
    assert info is not None
    assert 1100 < info.expires_in <= 1200


def test_a_text_of_the_shell_is_adopted_in_python_and_then_worth_nothing(client: gripfast.Client) -> None:
    text = acquired()
    with client.adopt(text) as lease:
        assert run_gripfast("renew", "-", stdin=text).returncode == 76
        assert run_gripfast("release", "-", stdin=text).returncode == 76
        assert lease.held


def test_a_text_of_python_is_released_by_the_shell(client: gripfast.Client) -> None:
    text = client.lock("deploy", min_hold=600).acquire().detach()
    assert run_gripfast("release", "-", stdin=text).returncode == 0
    info = client.inspect("deploy")
    assert info is not None
    assert info.kept == "min_hold"


def test_a_lock_that_has_expired_was_lost_although_nobody_has_taken_it(client: gripfast.Client) -> None:
    text = client.lock("deploy", ttl=0.2).acquire().detach()
    until(lambda: client.inspect("deploy") is None)
    ended = run_gripfast("release", "-", stdin=text)
    assert ended.returncode == 76
    assert "its lease has expired, or" in ended.stderr


def test_a_text_of_another_store_says_that_it_may_be_one(client: gripfast.Client, tmp_path: Path) -> None:
    text = client.lock("deploy").acquire().detach()
    with gripfast.connect(f"sqlite:///{tmp_path / 'other.db'}") as other:
        with pytest.raises(gripfast.LeaseLost, match=r"lost \(.*\): .* or belongs to another store"):
            other.adopt(text)
    client.adopt(text).release()


def test_a_lock_that_is_held_is_busy(client: gripfast.Client) -> None:
    with client.lock("deploy"):
        assert run_gripfast("acquire", "deploy", "--wait", "0").returncode == 75


@pytest.mark.parametrize("text", ["", "nonsense", "gripfast-lease-1.bm8="])
def test_a_text_that_makes_no_sense_is_refused(text: str) -> None:
    for command in ("renew", "release"):
        ended = run_gripfast(command, "-", stdin=text)
        assert ended.returncode == 64
        assert "gripfast acquire" in ended.stderr


def test_a_text_is_not_an_argument(call: Call) -> None:
    """Other users of the machine see arguments."""
    assert call("release", "gripfast-lease-1.bm8=").returncode == 64
