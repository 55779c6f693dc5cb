"""What a shell completes: click's own scripts, names of what is held from the store, and in bash names with colons.

Bash takes `report:7` for three words. So its script hands over the line as typed, and gets back only what follows the
last colon, which is the word that bash believes to be completing.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    add_completion_class,
    get_completion_class,
    shell_complete,
    split_arg_string,
)

import gripfast
from gripfast.cli.app import COMPLETE, PROGRAM
from gripfast.cli.kinds import AnyKind, kinds_of

NAMES_AT_MOST = 200
PATIENCE = 1.0
"""A shell that waits for a store that does not answer is worse than one that completes nothing."""


def held_names(url: str | None, prefix: str, kinds: Sequence[AnyKind]) -> list[str]:
    """Names of what is held; none if the store can't be asked."""
    try:
        with gripfast.connect(url, request_timeout=PATIENCE, connect_patience=PATIENCE) as client:
            here = [kind for kind in kinds_of(client) if kind in kinds]
            names = (info.name for kind in here for info in client.list(prefix, kind=kind))
            return [name for name in itertools.islice(names, NAMES_AT_MOST) if name.isprintable()]
    except gripfast.GripfastError:
        return []


_BASH = """\
%(complete_func)s() {
    local kind value
    COMPREPLY=()
    while IFS=, read -r kind value; do
        [[ $kind == plain ]] && printf -v value %%q "$value" && COMPREPLY+=("$value")
    done < <(COMP_LINE="$COMP_LINE" COMP_POINT="$COMP_POINT" %(complete_var)s=bash_complete "$1")
}

complete -F %(complete_func)s %(prog_name)s
"""


class ColonSafeBash(BashComplete):
    """Replaces click's class for bash."""

    source_template = _BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        typed = os.environ["COMP_LINE"].encode()[: int(os.environ["COMP_POINT"])].decode(errors="ignore")
        words = split_arg_string(typed)[1:]
        self._incomplete = words.pop() if words and not typed[-1:].isspace() else ""
        return words, self._incomplete

    def format_completion(self, item: CompletionItem[str]) -> str:
        before_colon = self._incomplete.rpartition(":")[0]
        value = item.value.removeprefix(f"{before_colon}:") if before_colon else item.value
        return f"{item.type},{value}"


add_completion_class(ColonSafeBash)


def complete(cli: click.Command, instruction: str) -> int:
    """Tell a shell's script what it asks for."""
    return shell_complete(cli, {}, PROGRAM, COMPLETE, instruction)


@click.command(short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a completion script for your shell. It completes commands, options and the names of held locks.

    \b
    bash:  eval "$(gripfast completion bash)"          in ~/.bashrc
    zsh:   eval "$(gripfast completion zsh)"           in ~/.zshrc
    fish:  gripfast completion fish | source           in config.fish
    """
    maker = get_completion_class(shell)
    assert maker is not None
    click.echo(maker(ctx.find_root().command, {}, PROGRAM, COMPLETE).source())
