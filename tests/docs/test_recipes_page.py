"""docs/recipes.md: what is neither a program nor a shell runs, too: crontabs, units, manifests, servers that fork.

Its programs and shells are tested by test_pages.py.
"""

import configparser
import os
import re
import shlex
import signal
import stat
import subprocess
import sys
import sysconfig
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

import gripfast
from support.pages import blocks, files, page, programs, typed, write_files
from support.ports import give_back_port, reserved_port
from support.redis_server import shared_server
from support.waiting import until

PAGE = page("recipes")
FILES = files(PAGE)
RECIPES = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
BUSY, DONE = 75, 79
PATIENCE = 60


def environment(url: str) -> dict[str, str]:
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "GRIPFAST_URL": url, "GRIPFAST_REQUIRE_URL": "1"}


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def ended(words: list[str], folder: Path, url: str, **variables: str) -> tuple[int, str]:
    """Status, and what was printed on standard output."""
    given = {**environment(url), **variables}
    done = subprocess.run(words, cwd=folder, env=given, capture_output=True, text=True, timeout=PATIENCE)
    return done.returncode, done.stdout


@contextmanager
def running(words: list[str], folder: Path, url: str) -> Iterator["subprocess.Popen[str]"]:
    """In a group of its own, which is gone at the end."""
    out = (folder / "log").open("w")
    with out:
        process = subprocess.Popen(
            words, cwd=folder, env=environment(url), stdout=out, stderr=out, text=True, process_group=0
        )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def log(folder: Path) -> str:
    return (folder / "log").read_text(encoding="utf-8")


# -- what every recipe has ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_says_when_what_can_go_wrong_and_what_it_cannot_promise(name: str) -> None:
    for part in ("**When:**", "**What can go wrong:**", "**What it can't promise:**", "```"):
        assert part in RECIPES[name], part


def test_the_table_at_the_top_leads_to_every_recipe() -> None:
    table = PAGE.partition("|---")[2].partition("\n\n")[0]
    assert sorted(re.findall(r"\[(.+?)\]\(#", table)) == sorted(RECIPES)


# -- cron --------------------------------------------------------------------------------------------------------------


def cron_jobs() -> list[str]:
    """Commands, as cron passes them to the shell: an escaped % is a %."""
    lines = [line for crontab in blocks(PAGE, "crontab") for line in crontab.splitlines() if re.match(r"[\d*]", line)]
    assert not any(re.search(r"(?<!\\)%", line) for line in lines)
    return [line.split(maxsplit=5)[5].replace(r"\%", "%") for line in lines]


def test_a_job_that_cron_starts_every_five_minutes_is_left_out_while_one_is_at_work(
    tmp_path: Path, sqlite_url: str
) -> None:
    sync, *_ = cron_jobs()
    script(tmp_path / "sync.sh", "echo synced")
    assert ended(["sh", "-c", sync], tmp_path, sqlite_url) == (0, "synced\n")
    assert ended(["sh", "-c", sync], tmp_path, sqlite_url) == (0, "synced\n")
    with gripfast.connect(sqlite_url) as client, client.lock("sync"):
        assert ended(["sh", "-c", sync], tmp_path, sqlite_url) == (0, "")


def test_of_the_machines_with_the_same_crontab_one_makes_the_backup(tmp_path: Path, sqlite_url: str) -> None:
    _, backup, _ = cron_jobs()
    script(tmp_path / "backup.sh", "echo saved")
    machines = [ended(["sh", "-c", backup], tmp_path, sqlite_url) for _ in range(3)]
    assert machines == [(0, "saved\n"), (0, ""), (0, "")]


def test_a_job_finds_the_store_in_a_file_that_only_its_user_can_read(tmp_path: Path, sqlite_url: str) -> None:
    *_, sync = cron_jobs()
    made = next(code for code in re.findall("`(.+?)`", RECIPES["Cron"]) if "chmod" in code)
    script(tmp_path / "sync.sh", "echo synced")
    home = {"HOME": str(tmp_path)}
    assert ended(["sh", "-c", made], tmp_path, "", **home) == (0, "")
    assert ended(["sh", "-c", sync], tmp_path, "", **home)[0] != 0
    secret = tmp_path / "gripfast.env"
    secret.write_text(re.sub("redis://[^']+", sqlite_url, FILES[secret.name]), encoding="utf-8")
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    with gripfast.connect(sqlite_url) as client, client.lock("sync"):
        assert ended(["sh", "-c", sync], tmp_path, "", **home) == (0, "")
    assert ended(["sh", "-c", sync], tmp_path, "", **home) == (0, "synced\n")


def test_a_backup_that_failed_is_tried_again(tmp_path: Path, sqlite_url: str) -> None:
    _, backup, _ = cron_jobs()
    script(tmp_path / "backup.sh", "exit 3")
    assert ended(["sh", "-c", backup], tmp_path, sqlite_url)[0] == 3
    script(tmp_path / "backup.sh", "echo saved")
    assert ended(["sh", "-c", backup], tmp_path, sqlite_url) == (0, "saved\n")


# -- at most once ------------------------------------------------------------------------------------------------------

AT_MOST_ONCE = RECIPES["At most once: record first, work after"]
KILLED = "kill -9 $$"


def test_a_mail_whose_sender_was_killed_is_not_sent_again(tmp_path: Path, sqlite_url: str) -> None:
    code = programs(AT_MOST_ONCE)[0].code.partition("client.forget(")[0]
    code += "import os\nprint(remind('ann', lambda _: (print('sending', flush=True), os.kill(os.getpid(), 9))))"
    assert ended([sys.executable, "-c", code], tmp_path, sqlite_url) == (-signal.SIGKILL, "sending\n")
    assert ended([sys.executable, "-c", code], tmp_path, sqlite_url) == (0, "False\n")


def test_in_the_shell_a_mail_whose_sender_was_killed_is_not_sent_again(tmp_path: Path, sqlite_url: str) -> None:
    command = typed(blocks(AT_MOST_ONCE, "console")[0])[0][0]
    killed = command.replace('echo "the mails are sent"', f"echo sending && {KILLED}")
    assert killed != command
    assert ended(["sh", "-c", killed], tmp_path, sqlite_url) == (-signal.SIGKILL, "sending\n")
    assert ended(["sh", "-c", killed], tmp_path, sqlite_url) == (DONE, "")


# -- systemd -----------------------------------------------------------------------------------------------------------


def unit(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(FILES[name])
    return parser


def test_systemd_takes_the_units(tmp_path: Path) -> None:
    """It wants the command and the user to be there."""
    command = script(tmp_path / "backup.sh", "true")
    for name in ("backup.service", "backup.timer"):
        text = FILES[name].replace("/usr/local/bin/backup.sh", str(command)).replace("User=backup", "User=root")
        (tmp_path / name).write_text(text, encoding="utf-8")
    units = [str(tmp_path / name) for name in ("backup.service", "backup.timer")]
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True, timeout=PATIENCE
    )
    # It may also complain of the machine's own units.
    assert (done.returncode, [line for line in done.stderr.splitlines() if "backup." in line]) == (0, [])


def test_the_service_makes_the_backup_once_and_other_machines_are_no_failures(tmp_path: Path, sqlite_url: str) -> None:
    service = unit("backup.service")["Service"]
    command = service["ExecStart"].replace(
        "/usr/local/bin/backup.sh", str(script(tmp_path / "backup.sh", "echo saved"))
    )
    words = shlex.split(command.replace("$$", "$").replace("%%", "%"))
    assert ended(words, tmp_path, sqlite_url) == (0, "saved\n")
    assert ended(words, tmp_path, sqlite_url) == (DONE, "")
    with gripfast.connect(sqlite_url) as client:
        (name,) = [each.name for each in client.list()]
        client.forget(name)
        with client.lock(name):
            assert ended(words, tmp_path, sqlite_url) == (BUSY, "")
    assert service["SuccessExitStatus"].split() == [str(BUSY), str(DONE)]


# -- Kubernetes --------------------------------------------------------------------------------------------------------


def container() -> dict[str, Any]:
    deployment = yaml.safe_load(FILES["scheduler.yaml"])
    template = deployment["spec"]["template"]
    assert deployment["spec"]["selector"]["matchLabels"] == template["metadata"]["labels"]
    (only,) = template["spec"]["containers"]
    return only


def as_pod(words: list[str], pod: str) -> list[str]:
    return [word.replace("$(POD_NAME)", pod) for word in words]


def test_an_evicted_pod_puts_things_away_and_the_other_one_leads(tmp_path: Path) -> None:
    url = shared_server().url + "?prefix=recipes-pods:"
    folders = {name: tmp_path / name for name in ("pod-1", "pod-2")}
    for folder in folders.values():
        folder.mkdir()
        write_files(PAGE, folder)
    command = container()["command"]
    with gripfast.connect(url) as client:
        election = client.election("scheduler")
        with running(as_pod(command, "pod-1"), folders["pod-1"], url) as first:
            until(lambda: "scheduling" in log(folders["pod-1"]), within=PATIENCE)
            assert election.leader().value == "pod-1"
            with running(as_pod(command, "pod-2"), folders["pod-2"], url):
                assert ended(container()["readinessProbe"]["exec"]["command"], folders["pod-2"], url)[0] == 0
                first.terminate()
                until(lambda: "scheduling" in log(folders["pod-2"]), within=PATIENCE)
                assert election.leader().value == "pod-2"
        assert "everything is put away" in log(folders["pod-1"])


def test_the_probe_fails_without_a_store(tmp_path: Path) -> None:
    assert ended(container()["readinessProbe"]["exec"]["command"], tmp_path, "redis://127.0.0.1:1")[0] != 0


# -- servers that fork -------------------------------------------------------------------------------------------------


@contextmanager
def served(recipe: str, folder: Path, url: str) -> Iterator[str]:
    """The address of the server that the recipe's command starts."""
    (command,) = blocks(RECIPES[recipe], "sh")
    assert "8000" in command
    write_files(PAGE, folder)
    port = reserved_port()
    with running(shlex.split(command.replace("8000", str(port))), folder, url):
        yield f"http://127.0.0.1:{port}/"
    give_back_port(port)


def answer(address: str) -> str | None:
    """None: the server does not listen yet."""
    try:
        with urllib.request.urlopen(address, timeout=PATIENCE) as reply:
            return str(reply.read(), "utf-8")
    except urllib.error.HTTPError as error:
        return f"{error.code} {str(error.read(), 'utf-8')}"
    except OSError:
        return None


def tokens_of_two_workers(address: str) -> list[int]:
    """Of answers one after the other, until a second worker has answered."""
    workers: set[int] = set()
    tokens: list[int] = []
    until(lambda: answer(address) is not None, within=PATIENCE)

    def two_have_answered() -> bool:
        worker, token = map(int, re.fullmatch(r"worker (\d+) has token (\d+)\n", str(answer(address))).groups())
        workers.add(worker)
        tokens.append(token)
        return len(workers) > 1

    until(two_have_answered, within=PATIENCE)
    return tokens


@pytest.mark.parametrize("recipe", ["gunicorn", "uvicorn"])
def test_workers_take_turns_and_a_visitor_is_told_if_it_takes_too_long(recipe: str, tmp_path: Path) -> None:
    url = f"{shared_server().url}?prefix=recipes-{recipe}:"
    with served(recipe, tmp_path, url) as address:
        tokens = tokens_of_two_workers(address)
        with gripfast.connect(url) as client, client.lock("stock"):
            assert answer(address) == "503 busy\n"
    assert tokens == sorted(set(tokens))


@pytest.mark.parametrize("preloaded", [True, False])
def test_under_gunicorn_an_async_client_of_the_module_belongs_to_the_loop_of_each_worker(
    preloaded: bool, tmp_path: Path
) -> None:
    url = f"{shared_server().url}?prefix=recipes-module-{preloaded}:"
    (command,) = re.findall(r"`(gunicorn .*UvicornWorker.*?)`", RECIPES["uvicorn"])
    code = FILES["pages.py"].replace("gripfast.async_lock(", "client.lock(")
    (tmp_path / "pages.py").write_text(f"{code}\n\nclient = gripfast.connect_async()\n", encoding="utf-8")
    port = reserved_port()
    words = [*shlex.split(command), "--bind", f"127.0.0.1:{port}", *["--preload"] * preloaded]
    with running(words, tmp_path, url):
        tokens = tokens_of_two_workers(f"http://127.0.0.1:{port}/")
    give_back_port(port)
    assert tokens == sorted(set(tokens))


def test_a_client_of_the_lifespan_serves_every_request(tmp_path: Path) -> None:
    url = f"{shared_server().url}?prefix=recipes-owned:"
    write_files(PAGE, tmp_path)
    port = reserved_port()
    with running(["uvicorn", "--port", str(port), "owned:app"], tmp_path, url):
        address = f"http://127.0.0.1:{port}/"
        first = until(lambda: answer(address), within=PATIENCE)
        assert int(first) < int(str(answer(address)))
    assert "Application shutdown complete" in log(tmp_path)
    give_back_port(port)
