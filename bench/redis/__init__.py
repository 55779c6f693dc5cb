"""The Redis store beside other libraries and bare sockets, on a server that the benchmarks start themselves."""
