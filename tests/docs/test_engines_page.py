"""What docs/engines.md shows is what the example has, which is installed and run by a test of its own."""

import pytest

from support.pages import ROOT, blocks, page

EXAMPLE = ROOT / "examples" / "gripfast-files"
FILES = {
    "spec": "src/gripfast_files/spec.py",
    "factory": "src/gripfast_files/factory.py",
    "tests": "tests/test_conformance.py",
    "doctor": "src/gripfast_files/doctor.py",
}
SHOWN = dict(zip(FILES, blocks(page("engines"), "py"), strict=True))


@pytest.mark.parametrize("name", FILES)
def test_the_code_is_that_of_the_example(name: str) -> None:
    code = (EXAMPLE / FILES[name]).read_text(encoding="utf-8")
    lines = [line.strip() for line in SHOWN[name].splitlines()]
    assert "\n".join(lines).strip() in "\n".join(line.strip() for line in code.splitlines())


def test_the_entry_point_is_that_of_the_example() -> None:
    (shown,) = blocks(page("engines"), "toml")
    assert shown in (EXAMPLE / "pyproject.toml").read_text(encoding="utf-8")
