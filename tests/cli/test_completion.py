"""Shells complete commands, options and the names of held locks."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest

import holdfast
from cli.commandline import HOLDFAST, run_holdfast


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH on which `holdfast` is ours."""
    script = tmp_path / "bin" / "holdfast"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec {shlex.join(HOLDFAST)} "$@"\n')
    script.chmod(0o700)
    return f"{script.parent}:{os.environ['PATH']}"


def completed_by_bash(line: str, path: str) -> list[str]:
    """What bash would offer with the cursor at the end of the line."""
    script = f"""
    eval "$(holdfast completion bash)"
    COMP_LINE={shlex.quote(line)}; COMP_POINT=${{#COMP_LINE}}
    _holdfast_completion holdfast
    printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    env = {**os.environ, "PATH": path}
    bash = ["bash", "--norc", "--noprofile", "-c", script]
    ended = subprocess.run(bash, env=env, capture_output=True, text=True, timeout=30, check=True)
    assert ended.stderr == ""
    return ended.stdout.split("\n")[:-1]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(shell: str) -> None:
    ended = run_holdfast("completion", shell)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "_HOLDFAST_COMPLETE" in ended.stdout


def test_another_shell_is_refused() -> None:
    assert run_holdfast("completion", "cmd").returncode == 64


@pytest.mark.usefixtures("url")
def test_bash_completes_commands_and_options(path: str) -> None:
    assert completed_by_bash("holdfast sh", path) == ["show"]
    assert completed_by_bash("holdfast run --gr", path) == ["--grace"]


def test_bash_completes_the_names_of_held_locks(client: holdfast.Client, path: str) -> None:
    with client.lock("nightly").acquire(), client.lock("night shift").acquire(), client.lock("other").acquire():
        assert sorted(completed_by_bash("holdfast show ni", path)) == ["night\\ shift", "nightly"]
        assert completed_by_bash("holdfast run --ttl 5 o", path) == ["other"]


def test_bash_completes_names_with_colons(client: holdfast.Client, path: str) -> None:
    with client.lock("report:7").acquire(), client.lock("report:x:8").acquire():
        assert sorted(completed_by_bash("holdfast show report:", path)) == ["7", "x:8"]
        assert completed_by_bash("holdfast show report:x:", path) == ["8"]


def test_names_come_from_the_store_that_the_line_names(
    tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/elsewhere.db"
    with holdfast.connect(url) as client, client.lock("nightly").acquire():
        assert completed_by_bash(f"holdfast --url {url} show ni", path) == ["nightly"]
        assert completed_by_bash(f"holdfast show --url {url} ni", path) == ["nightly"]


def test_a_store_that_can_not_be_asked_completes_nothing(path: str) -> None:
    assert completed_by_bash("holdfast show --url gopher://nowhere ni", path) in ([], [""])


@pytest.mark.usefixtures("url")
def test_the_command_after_the_dashes_is_not_ours_to_complete(client: holdfast.Client, path: str) -> None:
    with client.lock("nightly").acquire():
        assert completed_by_bash("holdfast run job -- ni", path) in ([], [""])
