"""`gripfast doctor` at files of the embedded store that are in the wrong place, or open to the wrong people."""

import json
import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

import gripfast
from gripfast.stores.sqlite.doctor import FIRST_PID_NAMESPACE, MB, Facts, judge
from stores.doctor_stage import found, problems, report_on

SOUND = Facts(
    Path("/var/lib/app/locks.db"),
    is_default=False,
    kind="ext4",
    mode=0o600,
    owner=1000,
    user=1000,
    folder_mode=0o755,
    free=10_000 * MB,
    wal=4 * MB,
    library="3.53.0",
    pid_namespace=FIRST_PID_NAMESPACE,
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "locks.db"
    with gripfast.connect(f"sqlite:///{path}") as client:
        client.lock("made").acquire().release()
    return path


def test_a_sound_file_has_no_problem(file: Path) -> None:
    assert problems(f"sqlite:///{file}") == []
    assert report_on(f"sqlite:///{file}").summary.startswith("SQLite 3.")


def test_a_file_that_does_not_exist_yet_has_no_problem(tmp_path: Path) -> None:
    assert problems(f"sqlite:///{tmp_path}/new.db") == []


@pytest.mark.parametrize("mode, name", [(0o666, "sqlite-others-write"), (0o640, "sqlite-others-read")])
def test_a_file_that_others_may_use_is_found(file: Path, mode: int, name: str) -> None:
    file.chmod(mode)
    finding = found(f"sqlite:///{file}")[name]
    assert f"{mode:04o}" in finding.what
    assert finding.todo == f"chmod 600 {file}"


def test_a_folder_that_others_may_write_is_found(file: Path) -> None:
    file.parent.chmod(0o777)
    assert "its folder" in found(f"sqlite:///{file}")["sqlite-others-write"].what
    file.parent.chmod(0o1777)
    assert "sqlite-others-write" not in found(f"sqlite:///{file}")


def test_a_file_of_another_user_is_found(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert "this is uid 12345" in found(f"sqlite:///{file}")["sqlite-other-owner"].what


def test_a_file_in_memory_is_found() -> None:
    folder = Path(f"/dev/shm/gripfast-{uuid.uuid4().hex}")
    folder.mkdir()
    try:
        assert "tmpfs" in found(f"sqlite:///{folder}/locks.db")["sqlite-in-memory"].what
    finally:
        shutil.rmtree(folder)


def test_a_folder_that_is_missing_is_found(tmp_path: Path) -> None:
    finding = found(f"sqlite:///{tmp_path}/missing/locks.db")["unusable"]
    assert "does not exist" in finding.what


def test_a_damaged_file_is_found(file: Path) -> None:
    data = bytearray(file.read_bytes())
    for page in range(1, len(data) // 4096):
        data[page * 4096 : page * 4096 + 2000] = b"x" * 2000
    file.write_bytes(data)
    findings = found(f"sqlite:///{file}")
    assert {"sqlite-corrupt", "unusable"} & findings.keys(), findings
    assert findings["sqlite-corrupt"].kind == "problem"


@pytest.mark.parametrize("library", ["3.40.1", "3.51.2", "3.50.6"])
def test_a_library_with_the_reset_bug_is_found(library: str) -> None:
    assert [each.name for each in judge(SOUND._replace(library=library))] == ["sqlite-wal-reset"]


@pytest.mark.parametrize("library", ["3.51.3", "3.50.7", "3.44.6", "3.53.0"])
def test_a_library_without_the_bug_is_not(library: str) -> None:
    assert [*judge(SOUND._replace(library=library))] == []


@pytest.mark.parametrize(
    "changed, name",
    [
        ({"kind": "overlay"}, "sqlite-container-layer"),
        ({"pid_namespace": 4026532000}, "sqlite-pid-namespace"),
        ({"free": 5 * MB}, "sqlite-disk-full"),
        ({"free": 50 * MB}, "sqlite-little-space"),
        ({"wal": 100 * MB}, "sqlite-large-log"),
        ({"is_default": True}, "sqlite-default-file"),
    ],
)
def test_what_is_known_of_the_system_is_judged(changed: dict[str, object], name: str) -> None:
    assert [each.name for each in judge(SOUND._replace(**changed))] == [name]  # type: ignore[arg-type]


def test_a_pid_namespace_is_found(file: Path) -> None:
    alone = ["unshare", "--map-root-user", "--pid", "--fork", "--mount-proc"]  # as a container does
    command = [*alone, sys.executable, "-m", "gripfast", "doctor", "--json", f"sqlite:///{file}"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "sqlite-pid-namespace" in [each["name"] for each in json.loads(ran.stdout)["findings"]]
