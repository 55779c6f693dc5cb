"""A database that is asked by commands, as a client or a script does: bytes in, replies out, nothing else happens.

It has no time of its own (`now_us`: the node's wall clock in microseconds, which may jump) and no network (`publish`:
what hands a message to the subscribers of a channel and tells how many there were; `receivers`: how many there are).
"""

from __future__ import annotations

from hiredis import ReplyError

from gripfast_lab.sim.redis import commands
from gripfast_lab.sim.redis.keyspace import Keyspace
from gripfast_lab.sim.redis.replies import Reply, Words, read_only, unknown_command, wrong_number


class Database(Keyspace):
    __slots__ = ()

    def call(self, args: Words) -> Reply:
        """The reply to one command, errors included."""
        command = commands.find(args[0])
        if command is None:
            return unknown_command(args)
        _, run, least, most, writes = command
        if not least <= len(args) <= most:
            return wrong_number(command.name)
        if writes and self.is_read_only:
            return read_only()
        try:
            return run(self, args)
        except ReplyError as error:
            return error.with_traceback(None)  # which would keep all of its frames alive
