"""Words of other tools on the command line, and what is meant here. `api/misuse.py` has the same for Python.

click suggests what is spelt alike: `--limit` for `--timeout`.
"""

from __future__ import annotations

import click

_RUN = "gripfast run NAME -- CMD holds a lock while a command runs, gripfast acquire NAME takes one without a command"
_SHOW = "gripfast show NAME tells who holds a lock, gripfast ls lists all"
_BREAK = (
    "gripfast break NAME takes a lock away from its holder, gripfast release - releases one that gripfast acquire took"
)

COMMANDS = {
    **dict.fromkeys(("list", "locks"), "gripfast ls lists what is held"),
    **dict.fromkeys(("lock", "exec", "with", "flock"), _RUN),
    **dict.fromkeys(("status", "info", "inspect", "get", "who", "holder"), _SHOW),
    **dict.fromkeys(("unlock", "free", "delete", "rm", "kill", "force-release"), _BREAK),
    **dict.fromkeys(("extend", "refresh"), "gripfast renew - renews a lock that gripfast acquire took"),
    **dict.fromkeys(("monitor", "watch"), "gripfast top watches what is held, gripfast serve shows it on a page"),
    **dict.fromkeys(("elect", "leader"), "gripfast lead NAME -- CMD runs a command while this machine leads"),
    "semaphore": "gripfast run NAME --limit 3 -- CMD runs a command while it holds one of three permits",
    "rwlock": "gripfast run NAME --read -- CMD, or --write, holds a read/write lock while a command runs",
    "once": "gripfast run NAME --once --keep 7d -- CMD runs a command that nobody runs again for seven days",
    "version": "gripfast --version prints it",
    "help": "gripfast --help lists the commands, gripfast COMMAND --help tells about one",
}
"""What there is no command for."""

_MEANINGS = {
    "--wait": "how long to wait for the lock",
    "--no-wait": "not to wait for the lock",
    "--ttl": "how long the lock stays held if nobody renews it",
    "--busy-exit-code": "the exit code if someone else holds the lock",
    "--limit": "how many may have a permit of the semaphore at the same time",
    "--read": "to read under a read/write lock",
    "--write": "to write under it",
    "--yes": "to do it without a question",
    "--json": "for programs",
}
_NOT_TO_WAIT = ("--nonblock", "--nonblocking", "--non-blocking", "--nb", "--nowait", "-n")
_OPTIONS = {
    "--timeout": ("--wait", "--ttl"),
    **dict.fromkeys(("--blocking-timeout", "--lock-timeout", "--acquire-timeout", "--max-wait", "-w"), ("--wait",)),
    **dict.fromkeys(_NOT_TO_WAIT, ("--no-wait",)),
    **dict.fromkeys(("--expire", "--expires", "--expiry", "--lease", "--lease-time", "--duration"), ("--ttl",)),
    **dict.fromkeys(("--conflict-exit-code", "-E"), ("--busy-exit-code",)),
    **dict.fromkeys(("--kind", "--semaphore", "--rwlock", "--shared", "--exclusive"), ("--limit", "--read", "--write")),
    **dict.fromkeys(("--force", "-f", "-y", "--no-input", "--noinput"), ("--yes",)),
    **dict.fromkeys(("--format", "--output", "-o"), ("--json",)),
}
_ONE_TRY = "gripfast lead waits until it leads. To try once, write gripfast run NAME --no-wait -- CMD"
_OF_COMMANDS: dict[tuple[str | None, str], str] = {
    **{("lead", option): _ONE_TRY for option in ("--no-wait", "--wait")},
    **{("acquire", option): "write --wait 0, not to wait for the lock" for option in ("--no-wait", *_NOT_TO_WAIT)},
}


def meant(error: click.UsageError) -> str | None:
    """The whole sentence; None if there is no more to say than click does."""
    if isinstance(error, click.NoSuchOption):
        return _other_option(error)
    if isinstance(error, click.BadOptionUsage):
        return _without_duration(error)
    is_url = "extra argument" in error.message and "://" in error.message
    return f"{error.message.rstrip('.')}: write --url before a URL." if is_url else None


def _without_duration(error: click.BadOptionUsage) -> str | None:
    params = error.ctx.command.params if error.ctx else []
    takes = any(error.option_name in each.opts and each.metavar == "DURATION" for each in params)
    option = error.option_name
    return f"{option} needs a duration: write {option} 60 (seconds), or {option} 5m." if takes else None


def _other_option(error: click.NoSuchOption) -> str | None:
    """None if the option is not one of these, or the command has nothing like it."""
    if error.ctx and (here := _OF_COMMANDS.get((error.ctx.info_name, error.option_name))):
        return f"No such option {error.option_name!r}: {here}."
    has = {each for param in error.ctx.command.params for each in param.opts} if error.ctx else set()
    near = [f"{each}, {_MEANINGS[each]}" for each in _OPTIONS.get(error.option_name, ()) if each in has]
    return f"No such option {error.option_name!r}: write {', or '.join(near)}." if near else None
