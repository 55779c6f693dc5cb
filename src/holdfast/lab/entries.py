"""What is in the lab, from worst to best: each protocol with its world, and what can be learned from it.

That a protocol is wrong is not said here: it is found by searching. What is said is which rule is expected to break,
so that a test can tell when the lab finds something else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.lab.engines.database import Database
from holdfast.lab.engines.ensemble import Ensemble
from holdfast.lab.engines.redis import Alone, Replicated, Several
from holdfast.lab.model import CRASH, CUT, LOST_REPLY, MISS, PAUSE, SLOW, WRONG_CLOCK, Protocol
from holdfast.lab.protocols import redis, redlock, sessions

THREE = ("A", "B", "C")


@dataclass(frozen=True)
class Entry:
    name: str
    title: str
    protocol: Callable[[], Protocol]
    """New for each search: engines remember what they were asked."""
    breaks: str
    idea: str
    """Why somebody would build it like this."""
    happens: str
    """What the history shows, in words."""
    notes: str
    """What the notes that Holdfast grew out of say about it."""
    answer: str
    """The rule of Holdfast that answers it."""


ENTRIES: tuple[Entry, ...] = (
    Entry(
        "setnx-del",
        "SETNX and DEL",
        lambda: Protocol(redis.setnx_del, Alone(), faults={CRASH: 1}),
        "progress",
        "SETNX sets a key only if it is not there, so only one client can set it. DEL gives the lock back.",
        "A crashes while it has the lock. Nobody is left who would delete the key.",
        "They begin with this one and leave it at once: an exception between the two commands locks everyone out.",
        "Every lock has a time to live. The engine ends it by itself if its holder does not renew it.",
    ),
    Entry(
        "setnx-expire",
        "SETNX, then EXPIRE",
        lambda: Protocol(redis.setnx_expire, Alone(), faults={CRASH: 1}),
        "progress",
        "The key gets a time to live, by a second command.",
        "A crashes between the two commands. The key is there and will never expire.",
        "Two commands are not one step: the process may die in between. This is the trap they warn of most often.",
        "Taking the lock and giving it a time to live is one request: one script, one statement.",
    ),
    Entry(
        "multi-exec",
        "SETNX and EXPIRE in MULTI/EXEC",
        lambda: Protocol(redis.multi_exec, Alone(), faults={CRASH: 1}),
        "progress",
        "A transaction makes one step of the two commands.",
        "EXPIRE is done whether or not SETNX set the key: a transaction has no 'if'. So each refused attempt of B"
        " gives the lock of the dead A another 30 seconds, and B comes back after 20.",
        "A transaction does not help, they say: EXPIRE should depend on what SETNX answered, and can't.",
        "The decision is made where the data is: a script looks and acts in one step. A refused attempt changes"
        " nothing about the lock.",
    ),
    Entry(
        "getset-clock",
        "SETNX with a time stamp, and GETSET",
        lambda: Protocol(redis.getset, Alone(), faults={WRONG_CLOCK: 1}, tells_time=True),
        "exclusion",
        "The value is the time at which the lock ends. Who finds it in the past takes over by GETSET, and has the"
        " lock if the old value is still the one it saw.",
        "One clock is ahead. For its client every lock is over before its time.",
        "They present it as an alternative to SET with options. It needs clocks that agree on all machines.",
        "The engine's clock alone decides when a lock ends. A client counts only how long something took.",
    ),
    Entry(
        "getset-owner",
        "The same, and the value that was overwritten",
        lambda: Protocol(redis.getset, Alone(), THREE, {SLOW: 1}, tells_time=True),
        "exclusion",
        "When A is done it deletes the lock, if the time stamp in it is not over yet.",
        "A is slow, and B takes over: the time stamp is B's now. It is not over, so A deletes it, and C gets in"
        " beside B. A time stamp does not say whose it is.",
        "They delete the key if it has not timed out, to spare the locks of others. They do not ask whose time it is.",
        "The value is an owner id that nobody else has. Only its owner can change or delete it.",
    ),
    Entry(
        "set-nx-ex-del",
        "SET NX EX, then DEL",
        lambda: Protocol(redis.set_nx_ex_del, Alone(), THREE, {SLOW: 1}),
        "exclusion",
        "One command takes the lock and gives it a time to live. The holder even stops working when that time is over.",
        "A is slow. Its lock expires, B gets it, and then A tidies up: DEL deletes the lock of B. C gets in beside B.",
        "The lock of another is released by mistake, they warn, and tell the same story with a third thread.",
        "Release names its owner: it frees the lock if it is still held by this very grant, and nothing otherwise.",
    ),
    Entry(
        "get-compare-del",
        "GET, compare, then DEL",
        lambda: Protocol(redis.get_compare_del, Alone(), THREE, {PAUSE: 1}),
        "exclusion",
        "The value says whose lock it is, and the holder looks before it deletes.",
        "A looks and finds its own value. Then it is paused, its lock expires, B gets it. What A saw is not true"
        " any more when it deletes.",
        "One of them stops here and calls it good enough. Others see that comparing and deleting are two steps.",
        "Comparing and deleting are one script.",
    ),
    Entry(
        "slow-holder",
        "SET NX PX, compare and delete in a script, a slow holder",
        lambda: Protocol(redis.compare_and_delete, Alone(), faults={SLOW: 1}),
        "exclusion",
        "Each request is right now: one step to take the lock, one step to give it back, and only by its owner.",
        "A needs longer than its lock lives, and does not look at the time. B has the lock, and A works on.",
        "A lock on Redis does not solve the problem of time-outs, they say: don't use it for long tasks, or choose"
        " a ttl of three to five times what the work takes on average.",
        "A lease knows its deadline, counted from before the request was sent. `lease.held` is false from then on,"
        " `ensure_held()` raises, `on_lost` is called. And a watchdog renews before that.",
    ),
    Entry(
        "watchdog",
        "The same with a watchdog",
        lambda: Protocol(redis.with_watchdog, Alone(), faults={CUT: 1}, renewal=redis.RENEWAL),
        "exclusion",
        "A thread renews the lock every ten seconds, for as long as the work takes.",
        "A is cut off from Redis. The watchdog does what it can; nobody tells the work that it was not enough.",
        "A thread that renews is their answer to the question how long the ttl should be.",
        "What can't be renewed in time is lost at its deadline, whatever the watchdog is doing, and the holder is"
        " told. An answer that comes after the deadline revives nothing.",
    ),
    Entry(
        "watchdog-paused",
        "The same with a watchdog, and a process that is paused",
        lambda: Protocol(redis.with_watchdog, Alone(), faults={PAUSE: 1}, renewal=redis.RENEWAL),
        "exclusion",
        "The work and the watchdog live in the same process.",
        "The process is paused: by its garbage collector, by a laptop's lid, by a virtual machine that moves. Its"
        " watchdog sleeps with it. When it goes on, it does not know that somebody else has the lock.",
        "They name long pauses as the reason for overlaps; for some of them the watchdog is the end of the story.",
        "No lock can stop a process that is paused between its last look and its write. So every grant has a"
        " fencing token, and the resource refuses a write with a smaller token than it has seen.",
    ),
    Entry(
        "thread-local",
        "Re-entry, counted in the thread",
        lambda: Protocol(redis.thread_local, Alone(), faults={SLOW: 1}),
        "exclusion",
        "Who has the lock already need not ask for it again: a counter in the thread is enough.",
        "The inner block believes that it has the full time from now on, but nobody told Redis. The lock expires,"
        " counted from the outer block.",
        "They say that a precise version would have to count the expiry, too, and then advise against re-entry.",
        "An inner block shares the lease of the outer one, with its deadline and its token, and is refused if that"
        " is lost.",
    ),
    Entry(
        "hash-count",
        "Re-entry, counted in a Redis hash",
        lambda: Protocol(redis.hash_count, Alone(), faults={LOST_REPLY: 1}),
        "exclusion",
        "The count is kept at the server, beside the owner: up by one for each acquire, down by one for each release.",
        "The answer to a release is lost, so it is sent again. The server counts down twice, and the outer block"
        " has lost its lock.",
        "This is how Redisson does it, and what they recommend for re-entry.",
        "Requests can be repeated: taking, renewing and releasing by owner id do the same once or twice. Re-entry"
        " is counted in the process, where no answer is lost.",
    ),
    Entry(
        "failover",
        "A lock on a primary whose replica takes over",
        lambda: Protocol(redis.on_primary, Replicated(1), faults={"failover": 1}),
        "exclusion",
        "A replica takes the primary's place if that goes down, so the lock service is always there.",
        "The replica gets the primary's writes a moment later. The lock of A was not among them when it took over.",
        "All of them tell this story. Most find it rare enough to live with.",
        "It is declared: no lock on a primary and its replicas can help it. Tokens go on growing (by the clock,"
        " too), so the fenced resource refuses A. Who can't live with that takes Redlock, ZooKeeper or a database.",
    ),
    Entry(
        "failover-wait",
        "The same with WAIT",
        lambda: Protocol(redis.on_primary_with_wait, Replicated(2), faults={"failover": 1}, takes_time=True),
        "exclusion",
        "WAIT tells when a replica has the write. A lock that one replica has survives the primary.",
        "Another replica takes over, one that did not have it. What has it is told to forget it.",
        "They do not know of WAIT. It is what people try next.",
        "WAIT makes a loss rarer, not impossible: no majority decides who takes over. Holdfast does not pretend"
        " otherwise.",
    ),
    Entry(
        "table",
        "A row in a table, without expiry",
        lambda: Protocol(sessions.table, Database(), faults={CRASH: 1}),
        "progress",
        "The name of the lock is a primary key. Who inserts the row has the lock; who deletes it gives it back.",
        "A crashes. Its row stays.",
        "It is the first of their two locks in a database; what becomes of the row if its program dies, they do not"
        " say.",
        "The row has an owner, an expiry by the database's clock, and a token. One statement takes it over if it"
        " has expired.",
    ),
    Entry(
        "for-update",
        "SELECT … FOR UPDATE, and a session that ends",
        lambda: Protocol(sessions.for_update, Database(), faults={"session": 1}),
        "exclusion",
        "The database locks the row until the transaction ends. If its client dies, the session ends and the lock"
        " with it.",
        "The session ends and its client lives: a time-out, a restart, a firewall. A works on, without a lock and"
        " without an error, until its next statement.",
        "It is the second of their locks in a database. They commit to release it and say no more.",
        "The session is watched, not only used: its loss is told within a second. It has a deadline as well, and"
        " the server ends a session that was silent for longer. Work that is in the same transaction (`within`)"
        " can't be done without the lock.",
    ),
    Entry(
        "zookeeper",
        "ZooKeeper, and a holder that ignores its session",
        lambda: Protocol(sessions.ephemeral_node, Ensemble(), faults={PAUSE: 1}),
        "exclusion",
        "A node that lives as long as its session, numbered by the ensemble. The lowest has the lock, the others"
        " wait in line.",
        "A is paused for longer than its session lives. The ensemble deletes its node, B is the lowest, and A goes"
        " on as if nothing had happened.",
        "They take ZooKeeper to be the lock without these problems. After the lock was given, they add, a pause"
        " beats every one of them.",
        "The deadline runs, connected or not: three quarters of the session's time-out from the last write that was"
        " answered. A session that is over is lost for good. The token is the node's czxid.",
    ),
    Entry(
        "redlock-one-by-one",
        "Redlock, asked node by node, two of five down",
        lambda: Protocol(redlock.one_by_one, Several(5, time_out=5), ("A",), {"node down": 2}, takes_time=True),
        "progress",
        "Five nodes that know nothing of each other. Who has three of them has the lock; two may be down.",
        "Each node that is down costs its time-out. After two of them the time that the lock would have lived is"
        " over, so the attempt has failed, and so will the next.",
        "If two of five are down, both time-outs have to be waited for, they say, and all of the other three are"
        " needed.",
        "All nodes are asked at once, and a majority of answers decides. A node that was silent once is asked in"
        " the background until it answers: it costs its time-out at most once.",
    ),
    Entry(
        "redlock-split",
        "Redlock, split votes and no random pause",
        lambda: Protocol(redlock.redlock, Several(3), THREE, in_step=True),
        "progress",
        "Who gets no majority gives everything back, waits, and tries again.",
        "Each of the three is nearest to another node and gets that one. All fail, all wait for the same time, all"
        " try again.",
        "They know it: everyone may get one or two nodes and nobody a majority. A random pause makes it unlikely,"
        " says the one; it can't be avoided, says the other.",
        "The pause before a retry is random and grows, so those who met once meet less and less. A release wakes"
        " who waits.",
    ),
    Entry(
        "redlock-paused",
        "Redlock, and a client that is paused",
        lambda: Protocol(redlock.without_looking_again, Several(3), faults={PAUSE: 1}),
        "exclusion",
        "A majority of nodes has the lock of A.",
        "A is paused until all of its nodes have forgotten it. Five nodes are no better than one here.",
        "They report both sides of the argument: Redlock notices what happens before the lock is given, nothing"
        " that happens after.",
        "The deadline again, and the token: Holdfast's Redlock gives one, and the resource checks it.",
    ),
    Entry(
        "redlock-clock",
        "Redlock, and a clock that jumps",
        lambda: Protocol(redlock.redlock, Several(3), faults={MISS: 1, "clock": 1}),
        "exclusion",
        "Nodes count the time to live by their own clocks. They need not agree on the hour, only on how long a"
        " second is.",
        "One node did not hear of A. Another one's clock jumps, and A's lock is over there. Those two are a"
        " majority for B.",
        "One side calls the assumption about clocks dangerous. The other says that an error smaller than the ttl is"
        " allowed for.",
        "It is declared: Redlock's exclusion needs clocks that do not jump. The tokens don't: no clock occurs in"
        " the argument why they grow.",
    ),
    Entry(
        "redlock-restart",
        "Redlock, and a node that comes back empty",
        lambda: Protocol(redlock.redlock, Several(3), faults={MISS: 1, "restart": 1}),
        "exclusion",
        "A node that crashed is restarted, and votes again.",
        "One node did not hear of A. Another one has forgotten it. Those two are a majority for B.",
        "They pass over it. Redis's own page advises a delayed restart.",
        "Each node has a birth marker. One that came back without does not vote until every lock that it may have"
        " forgotten is over.",
    ),
    Entry(
        "redlock-counters",
        "Redlock, with the largest of the nodes' counters as a token",
        lambda: Protocol(redlock.with_counters, Several(3), THREE, {MISS: 3}),
        "token",
        "Every node counts its grants, and the largest count of a majority is the token. Any two majorities share a"
        " node, so it must grow.",
        "The node that B and C share has counted one less than the other node of B. So both get the same token, and"
        " the resource can't tell who is the later one.",
        "They quote that Redlock has no fencing token and leave it there.",
        "A token is proposed, and a majority must accept it as larger than what they have accepted before. That"
        " takes one round trip, or two if a proposal was too small. The search for a history that breaks it ended"
        " without one.",
    ),
)

BY_NAME = {entry.name: entry for entry in ENTRIES}
