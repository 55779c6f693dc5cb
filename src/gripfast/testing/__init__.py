"""Tests for stores, for whoever writes one. Needs pytest, which Gripfast itself does not.

A package with a store has one file of tests, which says where an empty lock space is:

    import pytest
    from gripfast.testing.conformance import *

    @pytest.fixture
    def url(tmp_path):
        return f"files://{tmp_path}"

pytest then runs every test of Gripfast's own stores over it, sync and async. What the store can't do it says in its
Capabilities: those tests are skipped, and no others.

conformance   the suite
fixtures      `world`, `threads`, `tasks`: what a test asks for; `needs` and `unless`: what a store must be able to do
plugin        runs tests that are `async def`
colours       actors: one test body for sync and async
observing     an observer that keeps what it is told
waiting       waits for a condition
waiters       who waits for a lock, also where the store does not count them
"""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("gripfast.testing.conformance")
