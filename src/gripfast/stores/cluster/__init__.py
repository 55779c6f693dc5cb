"""Redis Cluster: many servers, each with some of the 16384 slots; every lock is in one slot."""
