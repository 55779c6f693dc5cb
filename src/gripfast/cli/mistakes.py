"""Words of other tools on the command line, and what is meant here. `api/misuse.py` has the same for Python.

click suggests what is spelt alike: `--limit` for `--timeout`.
"""

from __future__ import annotations

import click

_RUN = "gripfast run NAME -- CMD holds a lock while a command runs, gripfast acquire NAME without one"
_SHOW = "gripfast show NAME tells who holds a lock, gripfast ls lists all"
_BREAK = (
    "gripfast break NAME takes a lock away from its holder, gripfast release - releases one that gripfast acquire took"
)

COMMANDS = {
    **dict.fromkeys(("list", "locks"), "gripfast ls lists what is held"),
    **dict.fromkeys(("lock", "exec", "with"), _RUN),
    **dict.fromkeys(("status", "info", "inspect", "get", "who", "holder"), _SHOW),
    **dict.fromkeys(("unlock", "free", "delete", "rm", "kill", "force-release"), _BREAK),
    **dict.fromkeys(("extend", "refresh"), "gripfast renew - renews a lock that gripfast acquire took"),
    **dict.fromkeys(("monitor", "watch"), "gripfast top watches what is held, gripfast serve shows it on a page"),
    **dict.fromkeys(("elect", "leader"), "gripfast lead NAME -- CMD runs a command while this machine leads"),
}
"""What there is no command for."""

_MEANINGS = {
    "--wait": "how long to wait for the lock",
    "--no-wait": "not to wait for the lock",
    "--ttl": "how long the lock stays held if nobody renews it",
    "--busy-exit-code": "the exit code if someone else holds the lock",
    "--yes": "to do it without a question",
    "--json": "for programs",
}
_OPTIONS = {
    "--timeout": ("--wait", "--ttl"),
    **dict.fromkeys(("--blocking-timeout", "--lock-timeout", "--acquire-timeout", "--max-wait", "-w"), ("--wait",)),
    **dict.fromkeys(("--nonblock", "--nonblocking", "--non-blocking", "--nb", "--nowait", "-n"), ("--no-wait",)),
    **dict.fromkeys(("--expire", "--expires", "--expiry", "--lease", "--lease-time", "--duration"), ("--ttl",)),
    **dict.fromkeys(("--conflict-exit-code", "-E"), ("--busy-exit-code",)),
    **dict.fromkeys(("--force", "-f", "-y", "--no-input", "--noinput"), ("--yes",)),
    **dict.fromkeys(("--format", "--output", "-o"), ("--json",)),
}


def meant(error: click.NoSuchOption) -> str | None:
    """The whole sentence; None if the option is not one of these, or the command has nothing like it."""
    has = {each for param in error.ctx.command.params for each in param.opts} if error.ctx else set()
    near = [f"{each}, {_MEANINGS[each]}" for each in _OPTIONS.get(error.option_name, ()) if each in has]
    return f"No such option {error.option_name!r}: write {', or '.join(near)}." if near else None
