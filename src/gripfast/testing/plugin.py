"""Runs the tests of the suite that are `async def`, each on an event loop of its own. Others' tests are left alone."""

from __future__ import annotations

import inspect

import pytest

from gripfast.testing.colours import play

SUITE = "gripfast.testing.conformance."


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Before any other plugin for async tests, which would not close the clients; one may have wrapped the test."""
    test = inspect.unwrap(pyfuncitem.obj)
    if not inspect.iscoroutinefunction(test) or not test.__module__.startswith(SUITE):
        return None
    play(test, {name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters})
    return True
