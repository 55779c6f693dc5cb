"""The command line `gripfast`.

app          the commands together, and what becomes of errors
options      what several commands take: the URL, a lock's name, durations
streams      standard streams that are closed
codes        the exit codes and what they mean
failure      an error in one line, and its exit code
text         holders, tables, JSON
kinds        locks, semaphores, read/write locks: which of them a command is about
permits      what `text` is for locks, for semaphores and read/write locks
locks        ls, show, break, wait
commands     which commands there are, those of other packages, too
completion   what a shell completes
doctor       doctor: judges a deployment
serve        serve: a page of what is held; the page itself is in `gripfast.serve`
run          run: takes the lock and holds it while a command runs
waiting      waits for a lock, tells who has it meanwhile
signals      how signals are read and passed on
spawn        the command's process; `child` is what runs in it before the command does
supervise    the command must not outlive the lease
family       processes that the command left behind
"""

from gripfast.cli.app import main

__all__ = ["main"]
