"""The ZooKeeper store beside kazoo's own lock and bare requests, on a server that the benchmarks start themselves."""
