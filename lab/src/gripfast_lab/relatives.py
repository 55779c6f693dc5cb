"""The relatives of locks in the lab: semaphores, read/write locks, elections, hand-overs, and work that is done once.

The notes say nothing about them. So these entries tell where others have met the same, if that is known.
"""

from __future__ import annotations

from gripfast_lab.engines.redis import Alone
from gripfast_lab.entry import Entry
from gripfast_lab.protocols import leaders, once, permits
from gripfast_lab.world import (
    CRASH,
    CUT,
    JOB,
    LEAD,
    LOST_REPLY,
    PERMIT,
    READ,
    SLOW,
    WRONG_CLOCK,
    Protocol,
)

THREE = ("A", "B", "C")
FOUR = (*THREE, "D")
LIMIT = permits.LIMIT

RELATIVES: tuple[Entry, ...] = (
    Entry(
        "semaphore-counter",
        "A semaphore that counts with INCR and DECR",
        lambda: Protocol(permits.counter, Alone(), THREE, {CRASH: 1}, words=PERMIT, limit=LIMIT),
        "permit",
        "A semaphore lets a few in at the same time, here two. A counter on the server says how many are in. A client"
        " that counts up to three has come too late, and counts down again.",
        "A crashes and never counts down. From now on the counter is too large by one, and one permit is lost. After a"
        " second crash nobody gets in.",
        "",
        "A permit is a lease of its own: it has an owner and an expiry. If a holder of `client.semaphore(name, limit)`"
        " dies, its permits are free after its ttl. Nothing has to be counted down.",
        "Redisson's RSemaphore counts like this (Redisson #2045: a machine goes down, and its permit is never"
        " released). Its RPermitExpirableSemaphore does not.",
    ),
    Entry(
        "semaphore-refilled",
        "A semaphore that each program refills when it starts",
        lambda: Protocol(permits.refilled, Alone(), THREE, words=PERMIT, limit=LIMIT),
        "limit",
        "Here the counter says how many permits are free. Somebody has to write the first number, so each program"
        " writes it when it starts. That also repairs a counter that is wrong after a crash.",
        "B starts while A holds a permit, and sets the counter to two again. The same happens when C starts. So each of"
        " them finds a free permit.",
        "",
        "The limit is kept beside the holders, and nobody writes how many permits are free: that is counted from the"
        " holders, in the same step. A client with another limit gets an error, and `resize()` changes the limit.",
        "It is what happens if the line that creates a semaphore is in the start-up code of every instance.",
    ),
    Entry(
        "semaphore-two-steps",
        "A semaphore that counts its holders, then adds one",
        lambda: Protocol(permits.count_then_add, Alone(), THREE, words=PERMIT, limit=LIMIT),
        "limit",
        "Instead of a number, the server keeps a hash with the names of the holders. So everyone can see who they are,"
        " and an operator can remove one that died. A client first looks how many there are (HLEN), and then adds"
        " itself (HSET).",
        "B and C both look while only A is in. Then both add themselves. No fault is needed.",
        "",
        "Looking and adding are one script, or one transaction.",
        "The non-blocking acquire of kazoo's Semaphore let too many in for this reason (kazoo #213).",
    ),
    Entry(
        "semaphore-one-ttl",
        "A semaphore with one ttl for all of its holders",
        lambda: Protocol(permits.one_ttl, Alone(), FOUR, {SLOW: 1}, words=PERMIT, limit=LIMIT),
        "limit",
        "Counting is one step now, and the counter has a time to live, so no permit is lost for ever. The first client"
        " that counts sets the time to live. Each holder stops when its own 30 seconds are over.",
        "The counter lives for 30 seconds from A's request on. B came 5 seconds later, so its own 30 seconds are not"
        " over when the counter expires. C and D find no counter, and get in beside B.",
        "",
        "Each holder has an expiry of its own.",
        "Redisson's read lock had one expiry for all readers, so a reader with a short lease ended those of the others"
        " (Redisson #2144).",
    ),
    Entry(
        "semaphore-clocks",
        "A semaphore in a sorted set, by the clients' clocks",
        lambda: Protocol(
            permits.by_clocks, Alone(), THREE, {WRONG_CLOCK: 1}, tells_time=True, words=PERMIT, limit=LIMIT
        ),
        "limit",
        "Now each holder has its own time. The server keeps a sorted set of holders, ordered by the time at which each"
        " came. A client removes those who came more than 30 seconds ago (ZREMRANGEBYSCORE), adds itself (ZADD), and"
        " looks at its own place in the order (ZRANK). The first two are in.",
        "A's clock is 40 s ahead, so A's place is behind those of B and C, who come later than A. B and C are the first"
        " two now, and A does not notice. If A had come last instead, A would have removed both as expired.",
        "",
        "Only the engine's clock decides, and positions in the queue are numbers that the engine gives out.",
        "The book *Redis in Action* builds its first semaphore like this, and calls it unfair for this reason.",
    ),
    Entry(
        "readers-counted",
        "A read/write lock that counts its readers",
        lambda: Protocol(
            permits.readers_counted, Alone(), ("reader", "writer"), {CRASH: 1}, limit=LIMIT, has_roles=True
        ),
        "progress",
        "Many may read at the same time, but a writer must be alone. The writer's key has a time to live. The readers"
        " are a counter: the writer gets in when it is 0.",
        "A reader crashes, and the counter never becomes 0. Others can go on reading, so nobody notices, except the"
        " writer that waits for ever.",
        "",
        "Each reader of `client.rwlock(name)` has a lease of its own, with an expiry.",
        "It is the first semaphore again, with readers instead of holders.",
    ),
    Entry(
        "readers-upgrade",
        "A read/write lock whose readers become writers",
        lambda: Protocol(permits.upgraded, Alone(), renewal=permits.RENEW_READER, words=READ, limit=LIMIT),
        "progress",
        "Each reader has a key of its own, with a time to live that a watchdog renews. A program reads first, and finds"
        " out that it has to write. It does not want to give up what it has read, so it keeps its read lock and waits"
        " until it is the only reader.",
        "A and B both read, and both want to write. Each waits for the other to stop reading. Their watchdogs work, so"
        " nothing expires.",
        "",
        "There is no upgrade: a `write()` inside a `read()` raises ConfigurationError at once. Acquire `write()`, and"
        " call `lease.downgrade()` when only reading is left to do. No writer comes in between.",
        "Databases know it from transactions that lock a row FOR SHARE and then update it: they end one of the two with"
        " a deadlock error.",
    ),
    Entry(
        "readers-first",
        "A read/write lock that lets readers in while a writer waits",
        lambda: Protocol(
            permits.readers_first,
            Alone(),
            ("reader1", "reader2", "writer"),
            limit=LIMIT,
            has_roles=True,
            comes_back=30,
        ),
        "turn",
        "As long as somebody reads, others may read, too: that costs nobody anything. The writer comes in when nobody"
        " reads. Here two clients read again and again. Each reads for 60 seconds, and comes back after 30.",
        "While reader1 still reads, reader2 comes, and the writer has to go on waiting. From then on one of them is"
        " always there when the writer tries: the same state comes again and again. No fault is needed.",
        "",
        "First come, first served: a reader that comes after a waiting writer waits for it. Readers that wait together"
        " enter together.",
        "Textbooks call it the first readers-writers problem. Many read/write locks prefer readers like this.",
    ),
    Entry(
        "leader-wrote-last",
        "An election that is won by the last one who writes",
        lambda: Protocol(leaders.wrote_last, Alone(), faults={SLOW: 1}, words=LEAD),
        "exclusion",
        "If nobody leads, each candidate writes its name and waits for a second. Then it reads the name: all"
        " candidates read the same one, that of the last who wrote. The name lives for 60 seconds, and so does the"
        " leader's belief.",
        "A sees that nobody leads, and is slow. Meanwhile B is elected. Then A writes its name over B's, waits for a"
        " second, and finds its own name.",
        "",
        "To look and to write is one step: an election is a lock (`client.election(name)`), and its term is a lease.",
        "Scripts that elect a leader by a file on a network drive, or by a row in a table, often do it like this.",
    ),
    Entry(
        "leader-on-error",
        "An election in which an error counts as a yes",
        lambda: Protocol(leaders.leads_on_error, Alone(), faults={LOST_REPLY: 1}, words=LEAD),
        "exclusion",
        "Now the server decides in one step. A candidate that gets a no does not lead. Everyone else leads.",
        "B gets no answer at all. That is not a no, so B leads beside A. In real programs this is an exception that"
        " somebody catches and logs.",
        "",
        "Nobody leads because of an error: a request without an answer raises StoreUnavailable, and then"
        " `election.run(function)` retries.",
        "The scheduler redbeat, for Celery, ran beside the leader after a connection error (redbeat #208).",
    ),
    Entry(
        "leader-goes-on",
        "A leader that goes on when its lock is lost",
        lambda: Protocol(leaders.goes_on, Alone(), faults={CUT: 1}, renewal=leaders.LEADS, words=LEAD),
        "exclusion",
        "The leader is whoever has the lock. A thread renews it every ten seconds. If that fails, the thread writes a"
        " warning into the log, and tries again.",
        "A is cut off from the server. Its thread writes warnings, and A goes on leading. When the lock has expired, B"
        " leads, too.",
        "",
        "A term is lost at its deadline at the latest, with or without an answer. `election.run()` cancels a coroutine"
        " function then. A plain function looks at `term.held`, or calls `term.ensure_held()`. `gripfast lead` stops"
        " the command.",
        "The scheduler redbeat went on sending tasks while it could not reach Redis, beside the next leader"
        " (redbeat #129).",
    ),
    Entry(
        "handed-over-id",
        "A lock that is handed over by passing on its owner id",
        lambda: Protocol(leaders.passes_its_id, Alone(), ("web", "worker1", "worker2"), has_roles=True),
        "exclusion",
        "A web process acquires the lock, and a worker is to do the work. So the job carries the owner id of the lock."
        " With this id the worker can renew the lock, and release it when the work is done.",
        "The queue delivers the job twice, as queues do now and then. Both workers have the id, and the server can't"
        " tell them apart: for it, both are the owner.",
        "",
        "The text of `lease.detach()` can be adopted once: `client.adopt(text)` replaces the owner by a new one, in one"
        " step, and gives it a larger token. The second adopter is refused.",
        "Most queues deliver a job at least once, and sometimes twice: SQS, RabbitMQ and Celery (with acks_late) do.",
    ),
    Entry(
        "once-flag-before",
        "Run once: a flag that is set before the work",
        lambda: Protocol(once.flag_before, Alone(), faults={CRASH: 1}, words=JOB, is_once=True),
        "never",
        "Several servers want to do the same work, and it is to be done once. SETNX sets a flag, and only one of them"
        " can set it.",
        "A sets the flag and crashes in the middle of the work. For everyone else it is done.",
        "",
        "`client.once(name, keep=…)` holds a lock during the work, and records at its end that the work is done. If the"
        " process dies, the lock expires, and another process begins.",
        "The library celery-singleton marks a task when it is queued. If the task is revoked or killed, the mark"
        " stays (celery-singleton #29, #40).",
    ),
    Entry(
        "once-flag-after",
        "Run once: a flag after the work, and a lock around it",
        lambda: Protocol(once.flag_after, Alone(), words=JOB, is_once=True),
        "again",
        "Now the flag is set after the work, and a lock keeps two from doing it at the same time. Most of the time the"
        " work is done already, so the program looks at the flag first. If the flag is set, it needs no lock.",
        "B looks at the flag when A has done the work, but has not set the flag yet. When B gets the lock, everything"
        " is done, and B does it again. It should have looked once more. No fault is needed.",
        "",
        "Lock and record are one key (or one row): a request for the lock finds either a holder or a record, in one"
        " step. If a process crashes between the work and its record, the work is done again. So nothing is"
        " done exactly once, and Gripfast does not claim it.",
        "It is check-then-act, with the check outside of the lock.",
    ),
    Entry(
        "once-for-the-period",
        "Run once: a lock that stays for the whole period",
        lambda: Protocol(
            once.for_the_period, Alone(), faults={WRONG_CLOCK: 1}, tells_time=True, words=JOB, is_once=True
        ),
        "again",
        "The same job is in the cron table of every server, and is due at second 60. The first server that takes"
        " the lock does the work. It does not release the lock: the lock stays for 30 seconds, and by then the other"
        " servers have been refused.",
        "A's clock is 40 s ahead, so A does the work at second 20. At second 60 the lock is gone, and B does the work"
        " again.",
        "",
        "Say which run is meant: `client.once('digest:2026-11-15', keep=7 * 86400)`. The record is kept by the engine's"
        " clock, for much longer than clocks can be apart. `min_hold=` keeps a lock taken for a while, even if it is"
        " released sooner, but"
        " promises no more than that.",
        "ShedLock's lockAtLeastFor is meant for small differences between clocks. ShedLock #231 and #639 are about"
        " larger ones.",
    ),
)
