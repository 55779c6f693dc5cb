"""What is in the lab, each lock after the one that it repairs, with its world and what can be learned from it.

That a protocol is wrong is not said here: it is found by searching. What is said is which rule is expected to break,
so that a test can tell when the lab finds something else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gripfast_lab.engines.database import Database
from gripfast_lab.engines.ensemble import Ensemble
from gripfast_lab.engines.redis import Alone, LeftOver, Replicated, Several
from gripfast_lab.protocols import redis, redlock, sessions
from gripfast_lab.world import CRASH, CUT, LOST_REPLY, MISS, PAUSE, SLOW, WRONG_CLOCK, Protocol

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
    """What the notes that Gripfast grew out of say about it."""
    answer: str
    """The rule of Gripfast that answers it."""


ENTRIES: tuple[Entry, ...] = (
    Entry(
        "setnx-del",
        "SETNX and DEL",
        lambda: Protocol(redis.setnx_del, Alone(), faults={CRASH: 1}),
        "progress",
        "SETNX sets a key only if it is not there, so only one client can set it. DEL gives the lock back.",
        "A crashes while it has the lock. Nobody is left who would delete the key.",
        "Two of them begin with this one and leave it at once: an exception before the DEL locks everyone out.",
        "Every lock has a time to live. The engine ends it by itself if its holder does not renew it.",
    ),
    Entry(
        "setnx-expire",
        "SETNX, then EXPIRE",
        lambda: Protocol(redis.setnx_expire, Alone(), faults={CRASH: 1}),
        "progress",
        "The key gets a time to live, by a second command.",
        "A crashes between the two commands. The key is there and will never expire.",
        "Three of them warn of it: two commands are not one step, and the process may die in between.",
        "Taking the lock and giving it a time to live is one request: one script, one statement.",
    ),
    Entry(
        "multi-exec",
        "SETNX and EXPIRE in MULTI/EXEC",
        lambda: Protocol(redis.multi_exec, Alone(), faults={CRASH: 1}),
        "progress",
        "MULTI and EXEC make a transaction: Redis does the commands between them as one step, with nobody in"
        " between. So no crash can separate the two.",
        "EXPIRE is done whether or not SETNX set the key: a transaction has no 'if'. So each refused attempt of B"
        " gives the lock of the dead A another 30 seconds, and B comes back after 20.",
        "One of them says why: EXPIRE should depend on what SETNX answered, and a transaction can't.",
        "The decision is made where the data is: a script looks and acts in one step. A refused attempt changes"
        " nothing about the lock.",
    ),
    Entry(
        "getset-clock",
        "SETNX with a time stamp, and GETSET",
        lambda: Protocol(redis.getset, Alone(), faults={WRONG_CLOCK: 1}, tells_time=True),
        "exclusion",
        "The value is the time at which the lock ends: at second 0 that is 30. Whoever finds it in the past takes"
        " over by GETSET, which writes a new end and answers with the old one. If the old one is still what it"
        " saw, nobody was faster, and it has the lock.",
        "A's clock is 40 s ahead, so it shows 40 when B's lock has just begun. For A every lock is over before"
        " its time.",
        "One of them presents it as the second of two cures, beside SET with options. That all clocks must agree,"
        " it does not say.",
        "The engine's clock alone decides when a lock ends. A client counts only how long something took.",
    ),
    Entry(
        "getset-owner",
        "The same: whose time stamp is it?",
        lambda: Protocol(redis.getset, Alone(), THREE, {SLOW: 1}, tells_time=True),
        "exclusion",
        "The same program, with right clocks. Look at its end: when the work is done, it deletes the lock, but"
        " only if its own time is not over yet. That is to spare the lock of somebody who has taken over.",
        "A is done and looks at the time: 5, and its lock lives until 30, so it may delete it. Then it is slow. B"
        " finds the lock over and takes it; A deletes B's lock, and C gets in beside B. What A looked at was its"
        " own time, not whose lock it is.",
        "It is the fourth of their four steps: delete the lock if it has not timed out, and leave it alone otherwise.",
        "The value is an owner id that nobody else has. Only its owner can change or delete it, or an operator"
        " who means to.",
    ),
    Entry(
        "getset-overwritten",
        "The same: the value that was overwritten",
        lambda: Protocol(redis.getset_by_value, LeftOver(), THREE, {SLOW: 1}, tells_time=True),
        "exclusion",
        "The same, with a careful end: it deletes the lock only if the time stamp is its own. At the beginning a"
        " client that died has left its lock behind, and its time is over.",
        "A and B both see that the lock is over. B is faster and has it. A's GETSET tells A so, but it has"
        " written: A's old time stamp stands where B's was, and is over. So C takes the lock from B.",
        "In their third step the answer of GETSET tells the loser that somebody was faster. That the loser has"
        " overwritten the winner's time stamp by asking, they do not say.",
        "Whoever is refused has written nothing: looking and writing are one step, at the engine.",
    ),
    Entry(
        "set-nx-ex-del",
        "SET NX EX, then DEL",
        lambda: Protocol(redis.set_nx_ex_del, Alone(), THREE, {SLOW: 1}),
        "exclusion",
        "One command takes the lock and gives it a time to live. The holder even stops working when that time is over.",
        "A is slow for 40 s. Its lock is over after 30, and it knows and stops. B gets the lock. Then A comes to"
        " the end of its program and tidies up: DEL deletes the lock of B. C gets in beside B.",
        "The lock of another is released by mistake, three of them warn; one tells the same story with a third thread.",
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
        "One of them calls it nearly perfect and what most people do; its own summary uses a script. Another says"
        " why: comparing and deleting are not one step.",
        "Comparing and deleting are one script.",
    ),
    Entry(
        "slow-holder",
        "SET NX PX, compare and delete in a script, a slow holder",
        lambda: Protocol(redis.compare_and_delete, Alone(), faults={SLOW: 1}),
        "exclusion",
        "Now each request is right: one step to take the lock, one step to give it back, and only by its owner."
        " But the work takes as long as it takes, and nobody looks at the time.",
        "A needs longer than its lock lives, and does not look at the time. B has the lock, and A works on.",
        "A lock on Redis does not solve the problem of time-outs, one of them says: don't use it for long tasks."
        " Another chooses a ttl of three to five times what the work takes on average.",
        "What Gripfast gives is a lease: a lock with an end. It knows its deadline, counted from before the"
        " request was sent. `lease.held` is false from then on, `ensure_held()` raises, `on_lost` is called. And a"
        " watchdog renews before that.",
    ),
    Entry(
        "watchdog",
        "The same with a watchdog",
        lambda: Protocol(redis.with_watchdog, Alone(), faults={CUT: 1}, renewal=redis.RENEWAL),
        "exclusion",
        "A watchdog is a thread that renews the lock every ten seconds, for as long as the work takes. The lock"
        " still ends by itself if the whole program dies. So nobody has to look at the time, it seems.",
        "A is cut off from Redis. The watchdog does what it can; nobody tells the work that it was not enough.",
        "One of them: since no ttl is right, have a thread renew it, as Redisson's watchdog does.",
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
        "The one that has a watchdog names a full garbage collection as the reason for slow holders. That the"
        " watchdog stands still with it, it does not say.",
        "No lock can stop a process that is paused between its last look and its write. So every grant has a"
        " fencing token, and the resource refuses a write with a smaller token than it has seen.",
    ),
    Entry(
        "thread-local",
        "Re-entry, counted in the thread",
        lambda: Protocol(redis.thread_local, Alone(), faults={SLOW: 1}),
        "exclusion",
        "A function that has the lock calls another one that takes the same lock. It would wait for itself for"
        " ever. So the thread counts: whoever has the lock already need not ask for it again.",
        "A's time is over, and it knows. But its counter still says 1, and counters do not expire: the inner"
        " block is let in without asking, beside B.",
        "One of them says that a precise version would have to count the expiry, too, and then advises against"
        " re-entry.",
        "An inner block (`reentrant=True`) shares the lease of the outer one, with its deadline and its token. If"
        " that is lost, the inner block has to ask the server like everyone else.",
    ),
    Entry(
        "hash-count",
        "Re-entry, counted in a Redis hash",
        lambda: Protocol(redis.hash_count, Alone(), faults={LOST_REPLY: 1}),
        "exclusion",
        "The count is kept at the server, beside the owner, in a Redis hash (a dict): up by one for each acquire,"
        " down by one for each release; at 0 the lock is free. If a release is not answered it is sent again, or"
        " the lock would stay.",
        "The answer to a release is lost, so it is sent again. The server counts down twice, and the outer block"
        " has lost its lock. Redisson, which counts like this, has met it: today it gives each release a number of"
        " its own, so that a repeated one is recognised.",
        "One of them describes how Redisson does it, step by step. Another advises against re-entry.",
        "Requests can be repeated: taking, renewing and releasing by owner id do the same once or twice. Re-entry"
        " is counted in the process, where no answer is lost.",
    ),
    Entry(
        "failover",
        "A lock on a primary whose replica takes over",
        lambda: Protocol(redis.on_primary, Replicated(1), faults={"failover": 1}),
        "exclusion",
        "A right lock with a careful holder, on a server that has a replica: a second server that is sent a copy"
        " of all that the primary writes. It takes the primary's place if that goes down, so the lock service is"
        " always there.",
        "The replica gets the primary's writes a moment later. The lock of A was not among them when it took over.",
        "Three of them tell this story. One finds that most systems can bear it, one that the chance is tiny but"
        " has to be admitted, one that nothing is guaranteed.",
        "No lock on a primary and its replicas can prevent that, and Gripfast says so. Tokens go on growing as"
        " far as the new primary's clock does, so the fenced resource refuses A. If that is not enough, take"
        " Redlock, ZooKeeper, or a database whose standby does not lag.",
    ),
    Entry(
        "failover-wait",
        "The same with WAIT",
        lambda: Protocol(redis.on_primary_with_wait, Replicated(2), faults={"failover": 1}, takes_time=True),
        "exclusion",
        "WAIT tells when a replica has the write. A lock that one replica has survives the primary.",
        "The replica that takes over is the one that did not have A's lock. The other one had it, becomes a copy"
        " of the new primary, and forgets it. Those who choose prefer the replica that has more, among those that"
        " they can reach just then, and no majority decides.",
        "None of them mentions WAIT. It is what people try next.",
        "WAIT makes a loss rarer, not impossible. Gripfast does not pretend otherwise.",
    ),
    Entry(
        "table",
        "A row in a table, without expiry",
        lambda: Protocol(sessions.table, Database(), faults={CRASH: 1}),
        "progress",
        "The name of the lock is a primary key. Whoever inserts the row has the lock; whoever deletes it gives it"
        " back.",
        "A crashes. Its row stays.",
        "It is the first of their two locks in a database. What becomes of the row if its program dies, they do"
        " not say.",
        "The row has an owner, an expiry by the database's clock, and a token. One statement takes it over if it"
        " has expired.",
    ),
    Entry(
        "for-update",
        "SELECT … FOR UPDATE, and a session that ends",
        lambda: Protocol(sessions.for_update, Database(), faults={"session": 1}),
        "exclusion",
        "A session is what the database knows of one connection. The row is locked until the transaction of that"
        " session ends. If its client dies, the session ends, and the lock with it. (The row has to be there: a"
        " missing row locks nothing.)",
        "The session ends and its client lives: a time-out, a restart, a firewall. A works on, without a lock and"
        " without an error, until its next statement.",
        "It is the second of their locks in a database. They commit to release it and say no more.",
        "The session is watched, not only used: its loss is told within a second. It has a deadline as well, and"
        " the server ends a session that was silent for longer. Work that is in the same transaction (`within`)"
        " can't be done without the lock.",
    ),
    Entry(
        "zookeeper-orphan",
        "ZooKeeper, and a node that was made twice",
        lambda: Protocol(sessions.created_again, Ensemble(), ("A",), {LOST_REPLY: 1}),
        "progress",
        "ZooKeeper is several servers (an ensemble) that agree on everything. Its entries are called nodes as"
        " well. An ephemeral node lives as long as its client's session, that is, as long as the ensemble hears of"
        " the client at least every 10 seconds; a sequential one gets the next number. The lowest number has the"
        " lock; each of the others waits for the one before it.",
        "The answer to A's request is lost, so A asks again and has two nodes. It knows of the second one only,"
        " and waits until the first one is gone, which is its own. Its session lives, so that is never, and"
        " everyone else waits behind it.",
        "Two of them name ephemeral nodes as ZooKeeper's way to a lock, and say no more about them.",
        "A node carries a name that its maker has thought of before, so it is found again if the answer was lost."
        " What nobody has kept is deleted.",
    ),
    Entry(
        "zookeeper",
        "ZooKeeper, and a holder that ignores its session",
        lambda: Protocol(sessions.ephemeral_node, Ensemble(), faults={PAUSE: 1}),
        "exclusion",
        "Each answer arrives now. A node is gone when its session is over, so no lock stays behind.",
        "A is paused for longer than its session lives. The ensemble deletes its node, B's is the lowest, and A"
        " goes on as if nothing had happened.",
        "One calls ZooKeeper's the more reliable lock. Another reports that Redlock's critic advises it, and the"
        " reply of Redlock's author: a pause after the grant beats ZooKeeper as well.",
        "The deadline runs, connected or not: three quarters of the session's time-out, counted from when the"
        " last write that was answered was sent. A session that is over is lost for good. The token is the number"
        " of the write that made the node.",
    ),
    Entry(
        "redlock-one-by-one",
        "Redlock, asked node by node, two of five down",
        lambda: Protocol(redlock.one_by_one, Several(5, time_out=5), ("A",), {"node down": 2}, takes_time=True),
        "progress",
        "Redlock, proposed by Redis's author: five Redis servers that know nothing of each other. Whoever gets"
        " the lock on three of them has it, so two may be down. Here they are asked one after the other, the lock"
        " lives for 10 seconds, and a request to a node that is down fails after 5: nobody has told the client"
        " library how long a lock lives.",
        "Each node that is down costs its time-out. After two of them the time that the lock would have lived is"
        " over, so the attempt has failed, and so will every other. With a time-out of 50 ms it would come"
        " through, 0.1 s late.",
        "They ask for a time-out that is much smaller than the ttl: 5 to 50 ms for 10 s. One of them adds that"
        " with two of five down both time-outs have to be waited for, and all of the other three are needed.",
        "All nodes are asked at once, and a majority of answers decides. A node that was silent once is asked in"
        " the background until it answers: it costs its time-out at most once.",
    ),
    Entry(
        "redlock-split",
        "Redlock, split votes and no random pause",
        lambda: Protocol(redlock.redlock, Several(3), THREE, takes_time=True, in_step=True),
        "progress",
        "From here on three nodes, two of which are a majority. Whoever gets no majority gives everything back,"
        " waits for 20 seconds, and tries again. Here each client is always the first at the node it is nearest"
        " to.",
        "Each of the three gets the node it is nearest to, and no other. All fail, all wait for the same time,"
        " all try again.",
        "Three of them ask for a random pause. One adds that it makes the split rarer and can't avoid it.",
        "The pause before a retry is random and grows, so those who met once meet less and less: in this world"
        " nothing breaks any more if each waits for one second or two, as luck has it. A release wakes whoever"
        " waits.",
    ),
    Entry(
        "redlock-paused",
        "Redlock, and a client that is paused",
        lambda: Protocol(redlock.looked_before, Several(3), faults={PAUSE: 1}, takes_time=True),
        "exclusion",
        "The lock on a majority of nodes, and the check that belongs to Redlock: it counts only if getting it did"
        " not take longer than it lives. Then A works.",
        "A looked at the time, and there were 30 seconds left. Then it is paused until all of its nodes have"
        " forgotten it. However often a program looks, it can be paused between its last look and its next write."
        " Three nodes are no better than one here, and five would not be.",
        "One of them reports the reply of Redlock's author: what happens before the lock is given is noticed,"
        " what happens after is beyond any lock.",
        "The deadline again, and the token: Gripfast's Redlock gives one, and the resource checks it.",
    ),
    Entry(
        "redlock-clock",
        "Redlock, and a clock that jumps",
        lambda: Protocol(redlock.redlock, Several(3), faults={MISS: 1, "clock": 1}, takes_time=True),
        "exclusion",
        "Nodes count the time to live by their own clocks. They need not agree on the hour, only on how long a"
        " second is. And this holder is careful.",
        "One node did not hear of A. Another one's clock jumps, and A's lock is over there. These two say yes to"
        " B, and two of three are a majority. Only n3 knows better (nil: no).",
        "One side calls the assumption about clocks dangerous. The other says that an error smaller than the ttl"
        " is allowed for.",
        "Gripfast says so: Redlock's exclusion needs clocks that do not jump. Its tokens don't, up to a day: no"
        " clock occurs in the argument why they grow.",
    ),
    Entry(
        "redlock-restart",
        "Redlock, and a node that comes back empty",
        lambda: Protocol(redlock.redlock, Several(3), faults={MISS: 1, "restart": 1}, takes_time=True),
        "exclusion",
        "A node that crashed is restarted, and votes again.",
        "One node did not hear of A. Another one has forgotten it. These two are a majority for B.",
        "They pass over it. Redis's own page advises a delayed restart.",
        "Each node has a birth marker, a key that says since when it has its memory. A node that comes back"
        " without one gets a new one, and does not vote until every lock that it may have forgotten is over.",
    ),
    Entry(
        "redlock-counters",
        "Redlock, with the largest of the nodes' counters as a token",
        lambda: Protocol(redlock.with_counters, Several(3), THREE, {MISS: 3}, takes_time=True),
        "token",
        "Every node counts how often it has said yes, and answers with its count. The largest count that a client"
        " is told is its token. Any two majorities share a node, so tokens must grow. Or so it seems.",
        "The node that B and C share has counted one less than the other node of B. So both get the same token,"
        " and the resource can't tell who is the later one.",
        "They quote that Redlock has no fencing token and leave it there.",
        "A token is proposed, and a majority must accept it as larger than what they have accepted before. That"
        " takes one round trip, or two if a proposal was too small. The search for a history that breaks this rule"
        " ended without one.",
    ),
)

BY_NAME = {entry.name: entry for entry in ENTRIES}
