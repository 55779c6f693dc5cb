"""Every program in examples/ runs as a user would run it, and prints what its first lines promise."""

import ast
import functools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import gripfast
from support.etcd_servers import etcd_server
from support.redis_server import shared_server
from support.redlock_nodes import NODE_TIMEOUT, redlock_url, shared_nodes
from support.sql_servers import postgres_server
from support.zookeeper_servers import zookeeper_server

FOLDER = Path(__file__).parents[2] / "examples"
EXAMPLES = sorted(FOLDER.glob("*.py"))


def promised(path: Path) -> list[str]:
    """The lines of the docstring after "Prints:"."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return [line.strip() for line in text.partition("Prints:\n")[2].splitlines()]


@functools.cache
def nodes_that_vote() -> str:
    """New nodes vote at once only if all of them were there when they were first asked; an example leaves one out."""
    nodes = shared_nodes()[:3]
    with gripfast.connect(redlock_url(nodes, request_timeout=NODE_TIMEOUT)) as client, client.lock("first"):
        return ",".join(f"127.0.0.1:{node.port}" for node in nodes)


def run(path: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """With warnings as errors, in an empty folder, in the home of this test."""
    command = [sys.executable, "-W", "error", str(path)]
    servers = {
        "ETCD": etcd_server().address,
        "REDIS_URL": shared_server().url,
        "REDLOCK_NODES": nodes_that_vote(),
        "POSTGRES_URL": postgres_server().url,
        "ZOOKEEPER_HOSTS": zookeeper_server().address,
    }
    env = {**os.environ, **servers}
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_does_what_it_says(path: Path, tmp_path: Path) -> None:
    done = run(path, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == promised(path)
    assert not re.search("Traceback|Exception ignored", done.stderr), done.stderr  # log lines may be there


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_fits_on_one_screen(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) < 40


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_promises_something(path: Path) -> None:
    assert promised(path)
