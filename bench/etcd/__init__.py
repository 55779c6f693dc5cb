"""The etcd store beside other clients' locks and bare requests, on a server that the benchmarks start themselves."""
