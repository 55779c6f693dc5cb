"""An interrupt in the middle of the shared connection of a loop: nobody may take another's reply for its own."""

import subprocess
import sys
from pathlib import Path

import pytest
import redis

from support.redis_server import RedisServer
from support.sweeping import FULL

PROGRAM = Path(__file__).with_name("interrupted_loop.py")
STRIDE = 1 if FULL else 37


@pytest.mark.parametrize("what", ["connected", "connecting"])
def test_no_reply_is_taken_for_anothers_and_nobody_hangs(server: RedisServer, admin: redis.Redis, what: str) -> None:
    words = [sys.executable, str(PROGRAM), server.url, str(STRIDE), what]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 5
