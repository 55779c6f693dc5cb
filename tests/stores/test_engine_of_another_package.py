"""An engine in a package of its own: found by its entry point, held to the shipped suite, and named nowhere else."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from support.pages import ROOT

EXAMPLE = ROOT / "examples" / "gripfast-files"
SKIP_REASON = re.compile(r"\w+ is (True|False) in the capabilities of this store")

USE = """
import asyncio, gripfast, sys
url = sys.argv[1]
async def take():
    async with gripfast.connect_async(url) as client:
        return await client.lock("job").try_acquire()
with gripfast.connect(url, ttl=5) as client, client.lock("job") as lease:
    print(client.where, lease.held, asyncio.run(take()))
"""


class Installed:
    """The package as an installer leaves it: its modules, and a .dist-info with its entry points."""

    def __init__(self, folder: Path) -> None:
        self.package = folder / "package"
        shutil.copytree(EXAMPLE, self.package)
        self.site = folder / "site"
        shutil.copytree(EXAMPLE / "src", self.site)
        project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        info = self.site / f"gripfast_files-{project['version']}.dist-info"
        info.mkdir()
        info.joinpath("METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 1.0\n")
        points = [f"{name} = {value}" for name, value in project["entry-points"]["gripfast.stores"].items()]
        info.joinpath("entry_points.txt").write_text("\n".join(["[gripfast.stores]", *points]))
        self.url = f"files://{folder}/locks"

    def break_it(self, right: str, wrong: str) -> None:
        engine = self.site / "gripfast_files" / "engine.py"
        text = engine.read_text(encoding="utf-8")
        assert text.count(right) == 1
        engine.write_text(text.replace(right, wrong), encoding="utf-8")

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-W", "error", *arguments]
        environment = os.environ | {"PYTHONPATH": str(self.site)}
        return subprocess.run(command, env=environment, cwd=self.package, capture_output=True, text=True, check=False)


@pytest.fixture
def installed(tmp_path: Path) -> Installed:
    return Installed(tmp_path)


def test_it_is_found_by_its_entry_point(installed: Installed) -> None:
    ran = installed.run("-c", USE, installed.url)
    assert (ran.returncode, ran.stdout) == (0, f"{installed.url} True None\n"), ran.stderr


def test_the_command_line_takes_its_url_and_names_its_scheme(installed: Installed) -> None:
    inner = [sys.executable, "-m", "gripfast", "--url", installed.url, "show", "job"]
    ran = installed.run("-m", "gripfast", "--url", installed.url, "run", "--label", "nightly", "job", "--", *inner)
    assert ran.returncode == 0, ran.stderr
    assert "nightly" in ran.stdout
    unknown = installed.run("-m", "gripfast", "--url", "gopher://host", "ls")
    assert "files://" in unknown.stderr


def test_its_own_checks_are_those_of_the_doctor(installed: Installed) -> None:
    sound = installed.run("-m", "gripfast", "doctor", installed.url)
    assert (sound.returncode, "a folder of files" in sound.stdout) == (0, True), sound.stderr
    Path(installed.url.removeprefix("files://")).chmod(0o777)
    found = installed.run("-m", "gripfast", "doctor", installed.url)
    assert (found.returncode, "(mode 0777) [files-others-write]" in found.stdout) == (1, True), found.stdout


def test_the_doctor_can_do_without_checks_of_its_own(installed: Installed) -> None:
    (installed.site / "gripfast_files" / "doctor.py").unlink()
    spec = installed.site / "gripfast_files" / "spec.py"
    named = '    doctor="gripfast_files.doctor",\n'
    assert named in spec.read_text(encoding="utf-8")
    spec.write_text(spec.read_text(encoding="utf-8").replace(named, ""), encoding="utf-8")
    ran = installed.run("-m", "gripfast", "doctor", installed.url)
    assert (ran.returncode, "a lock was acquired" in ran.stdout) == (0, True), ran.stderr


def test_a_mistyped_option_is_told_with_what_may_have_been_meant(installed: Installed) -> None:
    ran = installed.run("-m", "gripfast", "--url", f"{installed.url}?pase=1", "ls")
    assert "unknown option" in ran.stderr
    assert "did you mean pace?" in ran.stderr


def test_without_it_its_scheme_is_unknown(installed: Installed) -> None:
    shutil.rmtree(installed.site)
    ran = installed.run("-m", "gripfast", "--url", installed.url, "ls")
    assert "unknown scheme 'files'" in ran.stderr


SOME = """
def pytest_collection_modifyitems(items):
    items[:] = items[{turn} % {of} :: {of}]
"""
ONE_OF = 8


@pytest.mark.timeout(900)  # some four hundred tests
def test_it_passes_the_shipped_suite_and_skips_by_its_capabilities_alone(
    installed: Installed, is_sampled: bool, pytestconfig: pytest.Config
) -> None:
    """In `make test` every eighth test of it, others with another SAMPLE."""
    if is_sampled:
        turn = pytestconfig.getoption("sample")
        (installed.package / "tests" / "conftest.py").write_text(SOME.format(turn=turn, of=ONE_OF), encoding="utf-8")
    ran = installed.run("-m", "pytest", "-q", "-rs", "--strict-markers", "-p", "no:cacheprovider", "tests")
    assert ran.returncode == 0, ran.stdout
    passed = re.search(r"(\d+) passed", ran.stdout)
    assert passed is not None
    assert int(passed[1]) > 200 // (ONE_OF if is_sampled else 1)
    skipped = [line for line in ran.stdout.splitlines() if line.startswith("SKIPPED")]
    assert skipped
    assert [line for line in skipped if not SKIP_REASON.search(line)] == []


@pytest.mark.in_turn(2)
@pytest.mark.parametrize(
    "right, wrong",
    [
        ("if not row.is_held:\n                row = self._given", "if True:\n                row = self._given"),
        ("rules.next_token(row.token, now_us)", "1"),
    ],
    ids=["it grants what is held", "its tokens do not grow"],
)
def test_a_planted_bug_is_found_by_the_suite(installed: Installed, right: str, wrong: str) -> None:
    installed.break_it(right, wrong)
    ran = installed.run("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "tests", "-k", "exclude_each_other")
    assert "1 failed" in ran.stdout


def test_nothing_of_gripfast_knows_it() -> None:
    sources = (ROOT / "src").rglob("*.py")
    assert [path for path in sources if "gripfast_files" in path.read_text(encoding="utf-8")] == []
