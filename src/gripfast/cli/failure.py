"""An error as the user sees it: one line on stderr and an exit code. A password in a URL is never part of it."""

from __future__ import annotations

import re

import click

from gripfast.cli import codes
from gripfast.cli.signals import Interrupted
from gripfast.errors import ConfigurationError, LeaseLost, LockTimeout, StoreUnavailable, visible

_CREDENTIALS = r"(?<=://)\S*@"
_SECRET = r"(?i)\b(passw(?:or)?d|pwd|secret)=[^&\s]+"


class Failure(Exception):
    """A command did not do what was asked; the message tells why and what to do next."""

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        super().__init__(message)


def explain(error: BaseException) -> tuple[int, str]:
    """The exit code and what to say; an empty message says nothing."""
    match error:
        case Failure():
            return error.code, str(error)
        case Interrupted():
            return codes.of_signal(error.signum), ""
        case KeyboardInterrupt():
            return codes.of_signal(2), ""
        case click.UsageError():
            return codes.USAGE, _usage(error)
        case ConfigurationError():
            return codes.USAGE, str(error)
        case LockTimeout():
            return codes.BUSY, str(error)
        case LeaseLost():
            return codes.LOST, str(error)
        case StoreUnavailable():
            return codes.UNAVAILABLE, f"{_sentence(str(error))} To use another store, set --url or $GRIPFAST_URL"
        case click.Abort():
            return codes.DECLINED, "nothing was changed"
    what = f"internal error, {type(error).__name__}: {error}"
    return codes.INTERNAL, f"{_sentence(what)} Please report it, with the traceback that GRIPFAST_DEBUG=1 prints"


def say(message: str) -> None:
    """One line on stderr; a stderr that is gone is no reason to fail."""
    try:
        click.echo(f"gripfast: {visible(redacted(' '.join(message.split())))}", err=True)
    except OSError:
        pass


def redacted(text: str) -> str:
    return re.sub(_SECRET, r"\1=***", re.sub(_CREDENTIALS, "***@", text))


def _usage(error: click.UsageError) -> str:
    path = error.ctx.command_path if error.ctx else "gripfast"
    from gripfast.cli.mistakes import meant  # for who makes one

    return f"{_sentence(meant(error) or error.format_message())} Try: {path} --help"


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."
