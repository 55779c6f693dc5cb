"""A lock in a ZooKeeper that you already run, in the same queue as kazoo's own Lock on the same path.

Prints:
    kazoo has it: None
    held by nightly report, token grows: True
    and kazoo is refused: False
    the session gave it 20.0 seconds
"""

import os

from kazoo.client import KazooClient

import gripfast

hosts = os.environ.get("ZOOKEEPER_HOSTS", "localhost:2181")
zk = KazooClient(hosts)
zk.start()

with gripfast.connect(f"zookeeper://{hosts}", root="/example") as client:
    lock = client.lock("report", ttl=20, label="nightly report")
    theirs = zk.Lock("/example/report")
    with theirs:
        print("kazoo has it:", lock.try_acquire())
        before = client.inspect("report").token
    with lock as lease:
        print(f"held by {client.inspect('report').label}, token grows:", lease.token > before)
        print("and kazoo is refused:", theirs.acquire(blocking=False))
        print("the session gave it", lease.ttl, "seconds")

zk.stop()
zk.close()
