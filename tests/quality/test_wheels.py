"""Two distributions: who installs gripfast gets locks, and nothing of the simulation, the planted bugs or the lab."""

import ast
import subprocess
import sys
import tarfile
from email.message import Message
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import pytest

import gripfast
from quality.test_layering import imports
from quality.tree import LAB, PACKAGE, ROOT, files

ABOUT_THE_LAB = {"gripfast/cli/commands.py"}
"""The hook by which commands of other packages are found: it may speak of the lab, and even it imports none of it."""


def built(source: Path, folder: Path, target: str) -> Path:
    """A wheel or an archive of the sources, made by the backend itself: nothing is downloaded."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (made,) = folder.iterdir()
    return made


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> ZipFile:
    return ZipFile(built(ROOT, tmp_path_factory.mktemp("ours"), "wheel"))


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> ZipFile:
    return ZipFile(built(ROOT / "lab", tmp_path_factory.mktemp("lab"), "wheel"))


def content(wheel: ZipFile) -> dict[str, bytes]:
    """Without what pip writes down about it."""
    return {name: wheel.read(name) for name in wheel.namelist() if ".dist-info/" not in name}


def about(wheel: ZipFile, file: str) -> str:
    (name,) = [name for name in wheel.namelist() if name.endswith(f".dist-info/{file}")]
    return wheel.read(name).decode()


def metadata(wheel: ZipFile) -> Message:
    return Parser().parsestr(about(wheel, "METADATA"))


def needed(wheel: ZipFile) -> set[str]:
    """What is installed with it, whoever asks for it."""
    return {each for each in metadata(wheel).get_all("Requires-Dist", []) if "extra ==" not in each}


def in_project(package: Path) -> dict[str, bytes]:
    found = [path for path in files() if path.is_relative_to(package)]
    return {path.relative_to(package.parent).as_posix(): path.read_bytes() for path in found}


def test_each_wheel_has_its_package_and_nothing_else(ours: ZipFile, lab: ZipFile) -> None:
    assert content(ours) == in_project(PACKAGE)
    assert content(lab) == in_project(LAB)


def test_no_part_of_the_simulation_of_the_lab_or_of_the_planted_bugs_is_in_ours(ours: ZipFile) -> None:
    parts = {part.removesuffix(".py") for name in ours.namelist() for part in name.split("/")}
    assert parts & {"sim", "lab", "mutants", "pictures", "gripfast_lab"} == set()
    assert {name for name, text in content(ours).items() if b"gripfast_lab" in text} <= ABOUT_THE_LAB


def test_no_module_of_ours_imports_the_lab(ours: ZipFile) -> None:
    named = {name: text for name, text in content(ours).items() if b"gripfast_lab" in text or b"lupa" in text}
    imported = {module.split(".")[0] for text in named.values() for module, _ in imports(ast.parse(text), "gripfast")}
    assert imported & {"gripfast_lab", "lupa"} == set()


def test_ours_needs_click_alone_and_offers_no_extra_for_the_lab(ours: ZipFile) -> None:
    assert {each.partition(">")[0] for each in needed(ours)} == {"click"}
    assert "lupa" not in about(ours, "METADATA")
    assert {"all", "redis"} <= set(metadata(ours).get_all("Provides-Extra", []))
    assert "sim" not in metadata(ours).get_all("Provides-Extra", [])


def test_the_lab_needs_the_very_version_it_was_built_with(lab: ZipFile) -> None:
    assert needed(lab) == {f"gripfast[redis]=={gripfast.__version__}", "lupa>=2.2"}


def test_both_have_one_version(ours: ZipFile, lab: ZipFile) -> None:
    assert {metadata(wheel)["Version"] for wheel in (ours, lab)} == {gripfast.__version__}


def test_the_lab_adds_its_command_by_the_hook(lab: ZipFile) -> None:
    assert about(lab, "entry_points.txt").split("\n")[:2] == ["[gripfast.commands]", "lab = gripfast_lab.command:lab"]


def test_both_carry_the_same_licence(ours: ZipFile, lab: ZipFile) -> None:
    assert about(ours, "licenses/LICENSE") == about(lab, "licenses/LICENSE")


def test_the_lab_is_the_same_when_it_is_built_from_its_archive(lab: ZipFile, tmp_path: Path) -> None:
    """There the file that has the version is not at hand."""
    with tarfile.open(built(ROOT / "lab", tmp_path / "archive", "sdist")) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    again = ZipFile(built(unpacked, tmp_path / "wheel", "wheel"))
    assert content(again) == content(lab)
    assert about(again, "METADATA") == about(lab, "METADATA")
