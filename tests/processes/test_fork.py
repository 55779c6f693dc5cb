"""Fork: the child owns nothing, the inherited client works anew in it, and the parent goes on."""

from pathlib import Path

import pytest

from support.processes import Worker

FORKS = 20


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_a_fork_under_load_leaves_the_child_with_nothing_and_the_parent_with_everything(
    store: str, tmp_path: Path
) -> None:
    url = "memory://forked" if store == "memory" else f"sqlite:///{tmp_path / 'locks.db'}"
    journal = tmp_path / "owners"
    with Worker("fork.py", url, FORKS, journal) as parent:
        line = parent.line(within=55.0)
        assert line == " ".join(["children"] + ["0"] * FORKS), parent.errors
        assert parent.expect("parent") == ["True", "False", "True"], "held, not lost, and the threads went on"
        parent.expect("closed")
        assert parent.ended() == 0
    owners = journal.read_text().split()
    assert len(owners) == len(set(owners)) > FORKS
