"""The command line `gripfast`.

app          the commands together, and what becomes of errors
options      what several commands take: the URL, a lock's name, durations
streams      standard streams that are closed
codes        the exit codes and what they mean
failure      an error in one line, and its exit code
text         holders, tables, JSON
kinds        locks, semaphores, read/write locks: which of them a command is about
permits      what `text` is for locks, for semaphores and read/write locks
held         what is held, of all kinds, one line for each holder
commands     which commands there are, those of other packages, too
mistakes     words of other tools, and what is meant here
observers    who is told of a command's locks: --otel, $GRIPFAST_OBSERVERS
completion   what a shell completes
locks        ls, show, break, forget, wait
handover     acquire, renew, release: a lock that no process holds
resize       resize: the limit of a semaphore
top          top: what is held and waited for, live; a package of its own
doctor       doctor: judges a deployment
init         init: a new deployment of Redis with replicas
schema       schema: the tables as text
serve        serve: a page of what is held; the page itself is in `gripfast.serve`
run          run: takes the lock and holds it while a command runs
lead         lead: the same while this machine leads; campaigns again after a loss
waiting      waits for a lock, tells who has it meanwhile
signals      how signals are read and passed on
spawn        the command's process; `child` is what runs in it before the command does
supervise    the command must not outlive the lease
family       processes that the command left behind
"""

from gripfast.cli.app import main

__all__ = ["main"]
