"""What is in the lab, each lock after the one that it repairs, with its world and what can be learned from it.
Semaphores, elections and other relatives of locks come after them, from `relatives`.

That a protocol is wrong is not said here: it is found by searching. What is said is which rule is expected to break,
so that a test can tell when the lab finds something else.
"""

from __future__ import annotations

from gripfast_lab.engines.database import Database
from gripfast_lab.engines.ensemble import Ensemble
from gripfast_lab.engines.members import Members
from gripfast_lab.engines.redis import Alone, LeftOver, Replicated, Several
from gripfast_lab.engines.replicas import Changing
from gripfast_lab.entry import Entry
from gripfast_lab.protocols import etcd, redis, redlock, replicas, sessions
from gripfast_lab.relatives import RELATIVES
from gripfast_lab.world import CRASH, CUT, LOST_REPLY, MISS, PAUSE, SLOW, WRONG_CLOCK, Protocol

THREE = ("A", "B", "C")


LOCKS: tuple[Entry, ...] = (
    Entry(
        "setnx-del",
        "SETNX and DEL",
        lambda: Protocol(redis.setnx_del, Alone(), faults={CRASH: 1}),
        "progress",
        "SETNX sets a key only if it is not there, so only one client can set it. DEL releases the lock.",
        "A crashes while it holds the lock. Nobody deletes the key.",
        "Two of them begin with this lock and drop it at once: an exception before the DEL locks everyone out.",
        "Every lock has a time to live. The engine ends it by itself if its holder does not renew it.",
    ),
    Entry(
        "setnx-expire",
        "SETNX, then EXPIRE",
        lambda: Protocol(redis.setnx_expire, Alone(), faults={CRASH: 1}),
        "progress",
        "The key gets a time to live, by a second command.",
        "A crashes between the two commands. The key is there and will never expire.",
        "Three of them warn of it: two commands are not one step, and the process may die between them.",
        "One request takes the lock and gives it a time to live: one script, or one statement.",
    ),
    Entry(
        "multi-exec",
        "SETNX and EXPIRE in MULTI/EXEC",
        lambda: Protocol(redis.multi_exec, Alone(), faults={CRASH: 1}),
        "progress",
        "MULTI and EXEC make a transaction: Redis runs the commands between them as one step. So no crash can"
        " separate the two.",
        "EXPIRE runs whether or not SETNX set the key, because a transaction has no 'if'. So each refused attempt"
        " of B gives the lock of the dead A another 30 seconds, and B retries after 20.",
        "One of them says why: EXPIRE should depend on the answer of SETNX, and a transaction can't do that.",
        "The server decides, because it has the data: a script looks and acts in one step. A refused attempt does"
        " not change the lock.",
    ),
    Entry(
        "getset-clock",
        "SETNX with a time stamp, and GETSET",
        lambda: Protocol(redis.getset, Alone(), faults={WRONG_CLOCK: 1}, tells_time=True),
        "exclusion",
        "The value is the time at which the lock ends: at second 0 that is 30. A client that finds this time in"
        " the past takes over by GETSET, which writes a new end and returns the old one. If the old end is still"
        " the one that the client saw, nobody was faster, and the client has the lock.",
        "A's clock is 40 s ahead, so it shows 40 when B's lock has just begun. So A believes that every lock of the"
        " others has expired.",
        "One of them presents it as the second of two solutions, beside SET with options. It does not say that all"
        " clocks must agree.",
        "Only the engine's clock decides when a lock ends. A client only measures how long something took.",
    ),
    Entry(
        "getset-owner",
        "SETNX and GETSET: the release checks only its own time",
        lambda: Protocol(redis.getset, Alone(), THREE, {SLOW: 1}, tells_time=True),
        "exclusion",
        "The same program, with correct clocks. Look at its end: when the work is done, it deletes the lock, but only"
        " if its own time is not over yet. This should protect the lock of a client that has taken over.",
        "A is done and looks at the time: 5. Its lock lives until 30, so A may delete the lock. Then A is slow. B"
        " finds that the lock has expired, and takes it. A deletes B's lock, and C gets in beside B. A has checked its"
        " own time, but not whose lock it is.",
        "One of them describes this lock in four steps. The fourth is: delete the lock if it has not timed out,"
        " otherwise leave it alone.",
        "The value is a unique owner id. Only its owner can change or delete the lock, or an operator by a force"
        " release.",
    ),
    Entry(
        "getset-overwritten",
        "SETNX and GETSET: the loser overwrites the time stamp",
        lambda: Protocol(redis.getset_by_value, LeftOver(), THREE, {SLOW: 1}, tells_time=True),
        "exclusion",
        "The same, with a careful end: the client deletes the lock only if the time stamp is its own. At the"
        " beginning there is an expired lock of a client that died.",
        "A and B both see that the lock has expired. B is faster and gets it. A's GETSET returns B's time stamp, so A"
        " knows that it has lost. But GETSET has also written: A's old time stamp has replaced B's time stamp. A's"
        " time stamp is already in the past. So C takes the lock from B.",
        "In the third of the four steps, the answer of GETSET shows the loser that somebody was faster. The note does"
        " not say that the loser has overwritten the winner's time stamp.",
        "A refused attempt writes nothing: looking and writing are one step, at the engine.",
    ),
    Entry(
        "set-nx-ex-del",
        "SET NX EX, then DEL",
        lambda: Protocol(redis.set_nx_ex_del, Alone(), THREE, {SLOW: 1}),
        "exclusion",
        "One command takes the lock and gives it a time to live. The holder even stops working when that time is over.",
        "A is slow for 40 s. Its lock ends after 30 s; A knows that and stops. B gets the lock. Then A comes to"
        " the end of its program and cleans up: DEL deletes the lock of B. C gets in beside B.",
        "Three of them warn that a client may delete another client's lock by mistake. One tells the same story"
        " with a third thread.",
        "A release names its owner id. It releases the lock only if that owner still holds it.",
    ),
    Entry(
        "get-compare-del",
        "GET, compare, then DEL",
        lambda: Protocol(redis.get_compare_del, Alone(), THREE, {PAUSE: 1}),
        "exclusion",
        "The value says whose lock it is, and the holder checks it before it deletes the lock.",
        "A checks and finds its own value. Then A is paused, its lock expires, and B gets the lock. When A deletes"
        " the lock, its check is out of date.",
        "One of them calls it nearly perfect, and says that most people do it; but its own summary uses a script."
        " Another says why: comparing and deleting are not one step.",
        "Comparing and deleting are one script.",
    ),
    Entry(
        "slow-holder",
        "SET NX PX, compare and delete in a script, a slow holder",
        lambda: Protocol(redis.compare_and_delete, Alone(), faults={SLOW: 1}),
        "exclusion",
        "Now each request is right: one step to acquire the lock, and one step to release it, by its owner only."
        " But the work may take long, and the program does not look at the time.",
        "A works longer than its lock lives, and does not look at the time. B gets the lock while A still works.",
        "One of them says: a lock on Redis does not solve the problem of time-outs, so don't use it for long tasks."
        " Another chooses a ttl of three to five times the mean time of the work.",
        "Gripfast gives you a lease: a lock with an end. The lease knows its deadline, which counts from before the"
        " request was sent. After the deadline `lease.held` is false, `ensure_held()` raises, and `on_lost` is called."
        " A watchdog renews the lease before the deadline.",
    ),
    Entry(
        "watchdog",
        "SET NX PX with a watchdog",
        lambda: Protocol(redis.with_watchdog, Alone(), faults={CUT: 1}, renewal=redis.RENEWAL),
        "exclusion",
        "A watchdog is a thread that renews the lock every ten seconds, for as long as the work takes. The lock"
        " still ends by itself if the whole program dies. It seems that the program need not look at the time any"
        " more.",
        "A is cut off from Redis. The watchdog can't renew the lock, but the work does not know that.",
        "One of them says: no ttl is right, so let a thread renew the lock, as Redisson's watchdog does.",
        "If a lease can't be renewed in time, it is lost at its deadline, whatever the watchdog is doing, and the"
        " holder is notified. An answer after the deadline does not revive it.",
    ),
    Entry(
        "watchdog-paused",
        "A watchdog, and a process that is paused",
        lambda: Protocol(redis.with_watchdog, Alone(), faults={PAUSE: 1}, renewal=redis.RENEWAL),
        "exclusion",
        "The work and the watchdog live in the same process.",
        "The process is paused: by its garbage collector, by a laptop's lid, by a virtual machine that moves. Its"
        " watchdog sleeps with it. When it goes on, it does not know that somebody else has the lock.",
        "The one that has a watchdog names a full garbage collection as the reason for slow holders. It does not"
        " say that the watchdog stands still, too.",
        "No lock can stop a process that is paused between its last check and its write. So every lease has a"
        " fencing token, and the resource rejects a write with a smaller token than it has seen.",
    ),
    Entry(
        "thread-local",
        "Re-entry, counted in the thread",
        lambda: Protocol(redis.thread_local, Alone(), faults={SLOW: 1}),
        "exclusion",
        "A function that holds the lock calls another one that takes the same lock. Without a special case, the"
        " thread would wait for itself for ever. So the thread keeps a counter: if it already holds the lock, it does"
        " not request the lock again.",
        "A's lock has expired, and A knows that. But its counter still says 1, and counters do not expire. So A"
        " enters the inner block without a request, beside B.",
        "One of them says that a precise version would have to consider the expiry, too, and advises against re-entry.",
        "An inner block (`reentrant=True`) shares the lease of the outer one, with its deadline and its token. If"
        " that lease is lost, the inner block has to request the lock from the server.",
    ),
    Entry(
        "hash-count",
        "Re-entry, counted in a Redis hash",
        lambda: Protocol(redis.hash_count, Alone(), faults={LOST_REPLY: 1}),
        "exclusion",
        "The server keeps the count, together with the owner, in a Redis hash (a dict). It counts up by one for"
        " each acquire, and down by one for each release. At 0 the lock is free. If a release gets no answer, the"
        " client repeats it, because otherwise the lock would stay.",
        "The answer to a release is lost, so the client repeats it. The server counts down twice, and the outer"
        " block has lost its lock. Redisson, which counts like this, had this bug. Today each of its releases has a"
        " number, so that the server recognises a repeated one.",
        "One of them describes how Redisson does it, step by step. Another advises against re-entry.",
        "Requests can be repeated: to acquire, renew or release by owner id twice does the same as once. The count of"
        " re-entries is kept in the process, not on the server, so it does not depend on an answer that could be"
        " lost.",
    ),
    Entry(
        "failover",
        "A lock on a primary whose replica takes over",
        lambda: Protocol(redis.on_primary, Replicated(1), faults={"failover": 1}),
        "exclusion",
        "A correct lock with a careful holder, on a server that has a replica. The replica is a second server that"
        " gets a copy of everything that is written to the primary. If the primary goes down, the replica takes its"
        " place, so the lock service stays available.",
        "The replica gets the primary's writes a moment later. When it took over, it had not yet received A's lock.",
        "Three of them tell this story. One says that most systems can tolerate it, one that it is very unlikely"
        " but possible, and one that nothing is guaranteed.",
        "A server that was just promoted grants nothing until every lock of its predecessor is over: its grace. With"
        " `replicas=N`, a client believes that it has a lock only when all replicas have it, too. Without both, the"
        " fenced resource still rejects A: tokens go on growing, unless the new primary's clock is behind.",
    ),
    Entry(
        "failover-wait",
        "A primary with replicas, and WAIT",
        lambda: Protocol(redis.on_primary_with_wait, Replicated(2), faults={"failover": 1}, takes_time=True),
        "exclusion",
        "WAIT returns when a replica has the write. If one replica has the lock, the lock should survive the loss of"
        " the primary.",
        "The replica that takes over is the one without A's lock. The other replica had the lock, but becomes a copy"
        " of the new primary, and forgets the lock. A failover prefers the replica with the most data, but only among"
        " the replicas that can be reached at that moment. It does not require that a majority of them has the write.",
        "None of them mentions WAIT. But it is what people try next.",
        "With `replicas=N`, Gripfast waits for all replicas that may be promoted, and refuses a smaller number. And it"
        " does so only together with the grace.",
    ),
    Entry(
        "failover-wait-connected",
        "A primary, and WAIT for all replicas that are connected",
        lambda: Protocol(
            replicas.waits_for_connected,
            Changing(1),
            faults={"replica cut off": 1, "failover": 1},
            takes_time=True,
        ),
        "exclusion",
        "One replica is not enough, so the client asks the primary how many are connected, and waits for all of them.",
        "The replica is cut off for a moment. So none is connected, and there is nothing to wait for. Then the primary"
        " goes down, and the replica takes over. It has not received A's lock.",
        "",
        "`replicas=N` is a fixed number: all that may be promoted, whether they are connected or not. If fewer"
        " acknowledge, the client does not believe that it has the lock.",
        "Redisson waits for the replicas that are connected.",
    ),
    Entry(
        "failover-grace-run-id",
        "A grace that knows servers by their run id",
        lambda: Protocol(
            replicas.grace_by_run_id,
            Changing(1, begins=replicas.first(replicas.RUN_ID)),
            faults={"switch-over": 2},
        ),
        "exclusion",
        "A promoted server grants nothing until every lock of its predecessor is over. How does a server know that it"
        " was just promoted? It compares its run id, which every process of Redis draws at random, with the one in a"
        " key, the marker.",
        "An operator switches to the replica and back. The first switch replaces the primary's data, and A's lock is"
        " gone. But the server is still the same process, with the same run id, and the marker names it. So there is"
        " no grace.",
        "",
        "The marker names the run id together with the id of the server's history (`master_replid`), which changes with"
        " every promotion.",
        "A search over all small histories found this, before such a grace was built.",
    ),
    Entry(
        "failover-grace",
        "A grace, and an old primary that goes on",
        lambda: Protocol(
            replicas.grace_alone,
            Changing(1, begins=replicas.first(replicas.BOTH_IDS)),
            faults={"goes on": 1},
            renewal=redis.RENEWAL,
        ),
        "exclusion",
        "Every promoted server keeps its grace. The grace lasts longer than every lock of a primary that went down.",
        "The old primary is not down: it was cut off or paused, or Sentinel has not told it yet. A is connected to it"
        " and renews its lock there, while the grace of the new primary ends.",
        "",
        "The grace also lasts for as long as an old primary may go on: 15 s with Sentinel. If it may take longer, only"
        " `replicas=N` helps: A does not believe a renewal by the old primary that no replica acknowledges.",
        "Sentinel leaves the old primary of a planned failover writable for 10 to 11 s.",
    ),
    Entry(
        "table",
        "A row in a table, without expiry",
        lambda: Protocol(sessions.table, Database(), faults={CRASH: 1}),
        "progress",
        "The name of the lock is a primary key. To insert the row is to acquire the lock; to delete it is to"
        " release the lock.",
        "A crashes. Its row stays.",
        "It is the first of their two locks in a database. They do not say what happens to the row if its program"
        " dies.",
        "The row has an owner, an expiry by the database's clock, and a token. One statement takes it over if it"
        " has expired.",
    ),
    Entry(
        "for-update",
        "SELECT … FOR UPDATE, and a session that ends",
        lambda: Protocol(sessions.for_update, Database(), faults={"session": 1}),
        "exclusion",
        "A session is one connection, as the database sees it. The row is locked until the transaction of that"
        " session ends. If the client dies, its session ends, and the lock with it. (The row has to exist: a"
        " missing row can't be locked.)",
        "A time-out, a restart or a firewall ends the session, but the client is still alive. A goes on without the"
        " lock, and gets no error until its next statement.",
        "It is the second of their locks in a database. They release it with COMMIT, and say no more.",
        "Gripfast watches the session: the holder knows of its loss within a second. The session has a deadline as"
        " well, and the server ends a session that is silent for longer. Work in the same transaction (`within`)"
        " can't be done without the lock.",
    ),
    Entry(
        "zookeeper-orphan",
        "ZooKeeper, and a node that was made twice",
        lambda: Protocol(sessions.created_again, Ensemble(), ("A",), {LOST_REPLY: 1}),
        "progress",
        "ZooKeeper is several servers (an ensemble) that agree on everything. Its entries are called nodes as"
        " well. An ephemeral node lives as long as its client's session, that is, as long as the ensemble receives"
        " something from the client at least every 10 seconds. A sequential node gets the next number. The lowest"
        " number holds the lock; each other node waits for the one before it.",
        "The answer to A's request is lost, so A repeats it and has two nodes. A knows only the second one, and"
        " waits until the first one is gone. But that is its own node, and its session lives. So A waits for ever,"
        " and everyone else waits behind it.",
        "Two of them name ephemeral nodes as ZooKeeper's way to a lock, and say no more about them.",
        "The client chooses an id before it creates the node, and the node's name contains it. So the client finds"
        " its node again if the answer was lost. It deletes a node that it does not need.",
    ),
    Entry(
        "zookeeper",
        "ZooKeeper, and a holder that ignores its session",
        lambda: Protocol(sessions.ephemeral_node, Ensemble(), faults={PAUSE: 1}),
        "exclusion",
        "Now every answer arrives. A node ends with its session, so no lock stays behind.",
        "A is paused for longer than its session lives. The ensemble deletes A's node, and B's node is the lowest"
        " now. Then A goes on as if nothing had happened.",
        "One of them calls ZooKeeper's lock more reliable. Another reports that Redlock's critic recommends it,"
        " and that Redlock's author replies: a pause after the grant breaks ZooKeeper's lock as well.",
        "The deadline runs, connected or not: three quarters of the session's time-out, from the moment at which"
        " the last answered write was sent. A session that has ended never comes back. The token is the number of"
        " the write that created the node.",
    ),
    Entry(
        "etcd-keep-alive",
        "etcd, and a holder that trusts keep-alives",
        lambda: Protocol(etcd.keeps_alive, Members({"A": "m1"}), faults={"stalled disk": 1}),
        "exclusion",
        "A cluster of etcd is several servers, its members, that agree on every write. Here m1 leads, and m2 stands for"
        " the others, who are a majority. A key can have a lease, and is deleted when its lease is over. The holder"
        " keeps its lease alive, here after 20 of its 30 seconds. If it gets no answer, it stops by itself.",
        "The disk of m1 stalls. The others elect a new leader, but m1 waits for its disk and does not know. A leader"
        " answers a keep-alive alone, from its memory. So m1 says yes to A, while the new leader, which gets no"
        " keep-alive from A, lets the lease expire.",
        "",
        "Gripfast never keeps a lease of etcd's alive. A renewal is a write, so a majority has to agree: it grants a"
        " new lease, and puts the key under it. This lease counts from the moment at which its request was sent.",
        "On a real cluster of three members, such holders went on for 6.5 to 8.5 s after the next one had got the lock,"
        " in 20 of 20 stalls (etcd #15247, #12528).",
    ),
    Entry(
        "etcd-keep-alive-read",
        "etcd, a keep-alive, and a read of the own key",
        lambda: Protocol(etcd.keeps_alive_and_reads, Members(), faults={"stalled disk": 1}),
        "exclusion",
        "After each keep-alive, the holder also reads its own key. The read is linearizable: a member answers it only"
        " if a majority confirms who leads. A is connected to m2, and every answer that it gets is true.",
        "A's keep-alives go to the new leader, so m1 gets none, and believes that A's lease has expired. It wants to"
        " revoke the lease, but that has to wait for its disk. When the disk goes on, the new leader gets this"
        " request, and does not ask whether the lease was kept alive meanwhile. A's key is deleted in the middle of"
        " its time.",
        "",
        "Each renewal puts the key under a new lease. If a member revokes the old lease, the key is not under it any"
        " more. The key is moved only if nobody has written it since, so a renewal that arrives late has no effect.",
        "On a real cluster of three members, such holders went on for 3.0 to 3.9 s after the next one had got the lock."
        " Since 3.4.31 and 3.5.13, a member makes sure that it still leads before it revokes a lease.",
    ),
    Entry(
        "etcd-own-key",
        "etcd, and a waiter that does not look at its own key",
        lambda: Protocol(etcd.looks_before_it_alone, Members(kept=True), faults={PAUSE: 1}),
        "exclusion",
        "Each client puts a key of its own, and the keys of a lock are a queue: each has the number of the write that"
        " created it. A client waits until no key is before its own. Its library keeps its lease alive, as long as the"
        " process runs.",
        "A is paused for longer than its lease lives, so its key is gone. When A goes on, it looks which keys are"
        " before its own. There is none, and A enters. B's key is the only one, and B enters as well.",
        "",
        "The grant is a write: if the waiter's own key is unchanged, and no key is older, the key is put again.",
        "The lock service of etcd told a waiter that it had the lock, after its lease had expired (etcd #9921), and so"
        " did etcd's own recipe of a read/write lock (etcd #16221).",
    ),
    Entry(
        "redlock-one-by-one",
        "Redlock, asked node by node, two of five down",
        lambda: Protocol(redlock.one_by_one, Several(5, time_out=5), ("A",), {"node down": 2}, takes_time=True),
        "progress",
        "Redlock, proposed by Redis's author, uses five Redis servers that know nothing of each other. A client"
        " that has the lock on three of them holds it, so two may be down. Here the client sends its requests one"
        " after the other, and the lock lives for 10 seconds. A request to a node that is down fails after 5"
        " seconds, because the client library does not know how long the lock lives.",
        "Each node that is down costs its time-out. After two of them the lock has expired, so the attempt has"
        " failed, and every other attempt will fail, too. With a time-out of 50 ms it would succeed, 0.1 s late.",
        "They recommend a time-out that is much smaller than the ttl: 5 to 50 ms for 10 s. One of them adds that"
        " with two of five down the client has to wait for both time-outs, and needs all of the other three.",
        "The client sends its requests to all nodes at once, and a majority of answers decides. It marks a silent"
        " node down, and probes it in the background until it answers. So a silent node costs its time-out at most"
        " once.",
    ),
    Entry(
        "redlock-split",
        "Redlock, split votes and no random pause",
        lambda: Protocol(redlock.redlock, Several(3), THREE, takes_time=True, in_step=True),
        "progress",
        "From here on there are three nodes, and two of them are a majority. A client without a majority releases"
        " what it got, waits for 20 seconds, and retries. Here each client is always the first at its nearest node.",
        "Each of the three clients gets its nearest node, and no other. All fail, all wait for the same time, and"
        " all retry.",
        "Three of them recommend a random pause. One adds that it makes a split rarer, but can't avoid it.",
        "The pause before a retry is random and grows, so clients that collided once collide less and less often. In"
        " this small world the search finds no violation if each client waits for either one or two seconds, at"
        " random. A release notifies the waiters.",
    ),
    Entry(
        "redlock-paused",
        "Redlock, and a client that is paused",
        lambda: Protocol(redlock.looked_before, Several(3), faults={PAUSE: 1}, takes_time=True),
        "exclusion",
        "The lock on a majority of nodes, with the check that Redlock requires: the lock counts only if acquiring"
        " it did not take longer than it lives. Then A works.",
        "A looked at the time, and 30 seconds were left. Then it is paused until its lock has expired on all"
        " nodes. However often a program checks, it can be paused between its last check and its next write. Three"
        " nodes are no better than one here, and five would not be, either.",
        "One of them reports the reply of Redlock's author: Redlock notices a pause before the grant, and no lock"
        " can notice a pause after it.",
        "As above: after its deadline a lease is not held, and the resource checks the token. Gripfast's Redlock has"
        " tokens.",
    ),
    Entry(
        "redlock-clock",
        "Redlock, and a clock that jumps",
        lambda: Protocol(redlock.redlock, Several(3), faults={MISS: 1, "clock": 1}, takes_time=True),
        "exclusion",
        "Nodes count the time to live by their own clocks. They need not agree on the time, only on how long a"
        " second is. This holder is careful.",
        "One node did not receive A's request. The clock of another node jumps, and A's lock expires there. These"
        " two nodes say yes to B, and two of three are a majority. Only n3 still has A's lock (nil: no).",
        "One side calls the assumption about clocks dangerous. The other says that Redlock tolerates an error"
        " smaller than the ttl.",
        "Gripfast's documentation says it clearly: Redlock's exclusion needs clocks that do not jump. The tokens of"
        " Gripfast's Redlock grow even if clocks jump, by up to a day.",
    ),
    Entry(
        "redlock-restart",
        "Redlock, and a node that comes back empty",
        lambda: Protocol(redlock.redlock, Several(3), faults={MISS: 1, "restart": 1}, takes_time=True),
        "exclusion",
        "A crashed node restarts, and votes again.",
        "One node did not receive A's request. Another node has forgotten A's lock. These two are a majority for B.",
        "They do not mention it. Redis's own page recommends a delayed restart.",
        "Each node has a birth marker: a key with the time at which the node came back empty, or 0 if it never did. A"
        " node that comes back without a marker gets a new one, and does not vote until every lock that it may have"
        " forgotten is over.",
    ),
    Entry(
        "redlock-counters",
        "Redlock, with the largest of the nodes' counters as a token",
        lambda: Protocol(redlock.with_counters, Several(3), THREE, {MISS: 3}, takes_time=True),
        "token",
        "Every node counts how often it has said yes, and answers with its count. The largest count that a client"
        " receives is its token. Any two majorities share a node, so it seems that tokens must grow.",
        "The node that B and C share has counted one less than B's other node. So both get the same token, and the"
        " resource can't see which holder is the later one.",
        "They quote that Redlock has no fencing token, and say no more.",
        "A client proposes a token, and a majority of nodes must accept it as larger than all that they have accepted"
        " before. That takes one round trip, or two if the proposal was too small. The search found no sequence of"
        " events that breaks this rule.",
    ),
)

ENTRIES = (*LOCKS, *RELATIVES)
BY_NAME = {entry.name: entry for entry in ENTRIES}
