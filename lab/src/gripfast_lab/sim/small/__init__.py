"""Small worlds, all of them: the production recipes under every interleaving that a few bounds allow.

What can happen next: the first message of any connection arrives, in either direction; time passes, up to the next
moment at which a process wakes or a key expires; or a fault happens. When nothing is under way, time passes by itself.
While messages are, it does so `passes` times at most: those messages are slow. There are `faults` faults at most, of
these kinds: what is first on a connection is lost with all behind it; a connection is reset; a request arrives twice; a
process or its machine dies, or is paused; a task is cancelled; the node forgets its scripts, or restarts with its
memory. Connections are made at once. Clocks are as far apart as is promised, in the direction that hurts: the node's is
fast.

A state is: what each process was told and when (`alone`), what the node has (`still`), what is under way, what is left
of the bounds, and what the callers were told. Two ways to the same state go on alike. A process is deterministic, has
nothing but what it was told, and so is the same; the node is, because its contents are. And the rules find the same:
rules about one process see what it was told; the only rules that look at two are about grants, so a caller's events are
stamped with the number of grants before them, which is all that their order can matter for. Events of the node are
judged by themselves at once.

Every state is judged by the rules for histories (`checks`). Where all are done and nothing is under way, the clients
are closed; then everyone must have been answered, and nothing may be left behind.

    alone, still    the parts: a process, the node; each a table of what it does, which is filled by running it
    state           a state, and what can happen to it
    faults, model   what can happen next, and what is wrong with a state, for the explorer
    told            histories, for the rules
    worlds          the bounds of each small world
"""
