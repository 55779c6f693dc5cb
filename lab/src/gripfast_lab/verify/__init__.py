"""`gripfast verify`: real processes on a real deployment, paused and killed, and what came of it judged as the
simulation's histories are.

Theory of operation. Workers (`worker`) are processes with a client each, sync or async. They acquire, wait, hold and
release, and note what they do and are told in a journal that all share (`journal`, `notes`). A crew (`crew`) starts,
pauses, kills and replaces them. The history is judged by `gripfast_lab.sim.checks`, by one clock: the machine's boot
clock is the same for all its processes, also for one that is paused.

What a worker believes is what its lease tells it (`lease.remaining()`), noted so that it is rather too short than too
long. Belief ends at the lease's own deadline: whoever is paused beyond it believes nothing any more. So observers can't
tell what is believed: they hear of a release when it is done, and not of deadlines. They tell the rest, as they do in
production: waits, renewals, losses. And what they tell is held against the journal (`figures`).

All names have a prefix of their own (`spaces`): whatever is below it is removed in the end.
"""
