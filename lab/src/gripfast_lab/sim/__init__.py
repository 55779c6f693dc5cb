"""The third runtime: the production code in a world that one seed decides, and that can be replayed."""
