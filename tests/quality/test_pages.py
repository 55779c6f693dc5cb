"""The blocks of a page are found and run as its readers would: support/pages.py is right about them."""

from pathlib import Path

import pytest

from support.pages import Program, blocks, files, is_as_told, programs, run_program, run_typed, typed


def test_blocks_are_found_by_their_language() -> None:
    text = "a\n```python\nx = 1\n```\n```sh\nmake test\n```\n- b\n\n  ```python\n  y = 2\n\n  z = 3\n  ```\n"
    assert blocks(text, "python") == ["x = 1\n", "y = 2\n\nz = 3\n"]
    assert blocks(text, "sh") == ["make test\n"]


@pytest.mark.parametrize("between", ["\n", "\nIt prints:\n\n"])
def test_the_text_after_a_program_is_what_it_prints(between: str) -> None:
    assert programs(f"```python\nx\n```\n{between}```text\n1\n```\n") == [Program("x\n", "1\n")]


@pytest.mark.parametrize("after", ["", "\nA sentence.\n\n```text\n1\n```\n", "\n```sh\n1\n```\n"])
def test_what_else_follows_a_program_is_not(after: str) -> None:
    assert programs(f"```python\nx\n```\n{after}") == [Program("x\n", None)]


def test_a_block_below_the_name_of_a_file_is_this_file_and_no_program() -> None:
    text = "`a.py`:\n\n```python\nx\n```\n\n```python\ny\n```\n\nIn `b.py`:\n\n```python\nz\n```\n"
    assert files(text) == {"a.py": "x\n"}
    assert programs(text) == [Program("y\n", None), Program("z\n", None)]


def test_what_a_program_prints_is_told(tmp_path: Path) -> None:
    assert run_program("print(1)", tmp_path) == "1\n"


@pytest.mark.parametrize(
    "code", ["1 / 0", "import warnings; warnings.warn('old')", "import sys; sys.stderr.write('Warning')"]
)
def test_a_program_that_fails_or_complains_is_noticed(code: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        run_program(code, tmp_path)


def test_a_console_is_commands_and_what_they_print() -> None:
    assert typed("$ one\n1\n\n2\n$ two\n") == [("one", "1\n\n2\n"), ("two", "")]


def test_commands_share_a_shell_and_what_they_print_is_told_apart(tmp_path: Path) -> None:
    assert run_typed(["echo one; echo two >&2", "(exit 3)", "echo $?"], tmp_path) == ["one\ntwo\n", "", "3\n"]


def test_dots_stand_for_anything_in_a_line() -> None:
    assert is_as_told("pid 7 (since …)\n".replace("…", "noon"), "pid … (since …)\n")
    assert not is_as_told("pid 7\nand more\n", "pid …\n")
    assert not is_as_told("a+b\n", "a.b\n")
