"""Shells complete commands, options and the names of held locks."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest

import gripfast
from cli.commandline import GRIPFAST, Call


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH on which `gripfast` is ours."""
    script = tmp_path / "bin" / "gripfast"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec {shlex.join(GRIPFAST)} "$@"\n')
    script.chmod(0o700)
    return f"{script.parent}:{os.environ['PATH']}"


class Bash:
    """A bash that has our script."""

    def __init__(self, script: str, path: str) -> None:
        self._script = script
        self._env = {**os.environ, "PATH": path}

    def completes(self, line: str) -> list[str]:
        """What it would offer with the cursor at the end of the line."""
        script = f"""{self._script}
        COMP_LINE={shlex.quote(line)}; COMP_POINT=${{#COMP_LINE}}
        _gripfast_completion gripfast
        for reply in "${{COMPREPLY[@]}}"; do printf '%s\\n' "$reply"; done
        """
        bash = ["bash", "--norc", "--noprofile", "-c", script]
        ended = subprocess.run(bash, env=self._env, capture_output=True, text=True, timeout=30, check=True)
        assert ended.stderr == ""
        return ended.stdout.splitlines()


@pytest.fixture
def bash(call: Call, path: str) -> Bash:
    return Bash(call("completion", "bash").stdout, path)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(shell: str, call: Call) -> None:
    ended = call("completion", shell)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "_GRIPFAST_COMPLETE" in ended.stdout


def test_another_shell_is_refused(call: Call) -> None:
    assert call("completion", "cmd").returncode == 64


@pytest.mark.usefixtures("url")
def test_bash_completes_commands_and_options(bash: Bash) -> None:
    assert bash.completes("gripfast sh") == ["show"]
    assert bash.completes("gripfast run --gra") == ["--grace"]


def test_bash_completes_the_names_of_held_locks(client: gripfast.Client, bash: Bash) -> None:
    with client.lock("nightly").acquire(), client.lock("night shift").acquire(), client.lock("other").acquire():
        assert sorted(bash.completes("gripfast show ni")) == ["night\\ shift", "nightly"]
        assert bash.completes("gripfast run --ttl 5 o") == ["other"]


def test_bash_completes_names_with_colons(client: gripfast.Client, bash: Bash) -> None:
    with client.lock("report:7").acquire(), client.lock("report:x:8").acquire():
        assert sorted(bash.completes("gripfast show report:")) == ["7", "x:8"]
        assert bash.completes("gripfast show report:x:") == ["8"]


def test_names_come_from_the_store_that_the_line_names(tmp_path: Path, bash: Bash) -> None:
    url = f"sqlite:///{tmp_path}/elsewhere.db"
    with gripfast.connect(url) as client, client.lock("nightly").acquire():
        assert bash.completes(f"gripfast --url {url} show ni") == ["nightly"]
        assert bash.completes(f"gripfast show --url {url} ni") == ["nightly"]


def test_a_store_that_can_not_be_asked_completes_nothing(bash: Bash) -> None:
    assert bash.completes("gripfast show --url gopher://nowhere ni") == []


@pytest.mark.usefixtures("url")
def test_the_command_after_the_dashes_is_not_ours_to_complete(client: gripfast.Client, bash: Bash) -> None:
    with client.lock("nightly").acquire():
        assert bash.completes("gripfast run job -- ni") == []
