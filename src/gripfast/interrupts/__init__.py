"""What is there for interrupts at any instruction.

A lease must not outlive those who can release it, and no mutex may stay locked, wherever an exception strikes that no
line of ours has raised. Such exceptions are

- KeyboardInterrupt, and whatever else a signal handler raises: in the main thread, between any two instructions, in
  `finally` and `__exit__`, too;
- CancelledError: in a task, wherever it awaits;
- GeneratorExit and the end of a frame that nobody resumes: a task whose loop is gone;
- what no code sees at all: a thread that ends, a result that nobody keeps, a fork.

Code can't answer them where they strike: the answer would be interrupted, too. So nothing here relies on a clause that
must run. What has to happen happens because an object dies, by the interpreter itself, or because one step of C
decides.

`scope.py`   Where the lease of a `with` block lives: in the object that the interpreter keeps to leave the block. It
             dies with the block, even where `__exit__` is never reached.
`living.py`  Books of objects that are still alive. Adding, dying and listing are one step of a dict each, so a fork and
             the end of the process always find all of them.
`graves.py`  Sockets of connections that were dropped in the middle of a request. The weak reference to the connection
             closes the socket, without a frame of ours.
`guard.py`   The mutex for the few steps that need one. Its release stands in two nested clauses: one interrupt can't
             skip both. A signal handler that comes back into it is refused instead of waiting for itself.
`threads.py` Threads of our own. Another thread starts them, one in which no signal handler runs.

Elsewhere the same idea decides:

`core/ledger.py`    knows a lease weakly. When the lease dies unreleased, the callback of the weak reference puts its
                    owner id on a queue (`SimpleQueue.put`: no Python frame, no lock). The reader of the queue releases
                    what that owner has at the engine.
`core/lease.py`     Endings are appended to a list, and the first one counts: there is no mutex to be left locked.
`core/soonest.py`   Moments are appended to a deque, never stored over another.
connections lent    A request takes its connection out of a deque, and puts it back only when the reply was read. So one
                    that an interrupt left half-read never serves again.

`tests/sweeps` raise at every instruction of these paths, and look at what is left.
"""
