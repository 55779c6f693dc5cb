"""`scripts/system-needs`, with a package manager and a user id that are not the machine's."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from quality.tree import ROOT

ORDERS = "orders.txt"


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder of commands that stand before the real ones; apt-get writes down what it was told."""
    put(tmp_path / "apt-get", f'echo "$@" >> {tmp_path / ORDERS}')
    return tmp_path


def put(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)


def system_needs(tools: Path, python: str, user: int, *what: str) -> subprocess.CompletedProcess[str]:
    put(tools / "id", f"echo {user}")
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "PYTHON": python}
    return subprocess.run([ROOT / "scripts" / "system-needs", *what], env=environment, capture_output=True, text=True)


def test_nothing_is_installed_when_nothing_is_missing(tools: Path) -> None:
    assert system_needs(tools, sys.executable, user=0).returncode == 0
    assert not (tools / ORDERS).exists()


def test_root_has_the_missing_packages_installed(tools: Path) -> None:
    python = tools / "python-to-be"
    put(tools / "apt-get", f'echo "$@" >> {tools / ORDERS}; ln -sf {sys.executable} {python}')
    assert system_needs(tools, str(python), user=0).returncode == 0
    assert (tools / ORDERS).read_text(encoding="utf-8").splitlines() == [
        "update -q",
        "install -yq python3 python3-venv",
    ]


def test_anyone_else_is_told_what_is_missing(tools: Path) -> None:
    ended = system_needs(tools, "no-such-python", user=1000)
    assert ended.returncode == 1
    assert "sudo apt-get install python3 python3-venv" in ended.stderr
    assert not (tools / ORDERS).exists()


@pytest.mark.parametrize(
    ("command", "packages"),
    [
        ("redis-server", "redis-server"),
        ("postgres", "postgresql"),
        ("mariadbd", "mariadb-server"),
        ("pgbouncer", "pgbouncer"),
        ("java", "default-jre-headless"),
        ("openssl", "openssl"),
        ("systemd-analyze", "systemd"),
        ("node", "nodejs npm"),
        ("npm", "npm"),
        ("chromium", "chromium"),
        ("cc", "gcc libc6-dev"),
    ],
)
def test_a_package_is_asked_for_only_where_its_command_does_not_work(tools: Path, command: str, packages: str) -> None:
    for slow, does in {"java": "exit 0", "node": "exit 0", "npm": "exec node", "chromium": "exit 0"}.items():
        put(tools / slow, does)
    put(tools / command, "exit 1")
    ended = system_needs(tools, sys.executable, user=1000)
    assert ended.stderr.splitlines()[-1] == f"On Debian or Ubuntu: sudo apt-get install {packages}"


def test_tests_without_servers_need_python_alone(tools: Path) -> None:
    put(tools / "redis-server", "exit 1")
    assert system_needs(tools, sys.executable, 1000, "python").returncode == 0
    assert "apt-get install python3 python3-venv\n" in system_needs(tools, "no-such-python", 1000, "python").stderr


def test_an_installation_that_did_not_help_ends_the_run(tools: Path) -> None:
    assert system_needs(tools, "no-such-python", user=0).returncode == 1


def test_a_python_that_is_too_old_is_named(tools: Path) -> None:
    old = tools / "old-python"
    put(old, '[ "$1" = --version ] && echo "Python 3.9.1"; case "$2" in *version_info*) exit 1;; esac')
    ended = system_needs(tools, str(old), user=0)
    assert ended.returncode == 1
    assert "Python 3.9.1 is too old" in ended.stderr
