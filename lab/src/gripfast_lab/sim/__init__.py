"""The third runtime: the production code in a world that one seed decides, and that can be replayed.

Nothing here may depend on a hash, on the garbage collector, on the time, or on what ran before.
"""
