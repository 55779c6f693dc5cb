"""A primary and a replica of a test's own, whose link can be held up, so that a failover loses something."""

from support.ports import HOST
from support.proxy import Proxy
from support.redis_server import RedisServer, opened
from support.waiting import until

LEVEL = "failover_grace=0.5&max_ttl=1"
GRACE = 1.5
TTL = 0.9


class Failing:
    """A primary, a replica whose link can be held up, and an address that leads to one of them."""

    def __init__(self) -> None:
        quick = ("--repl-diskless-sync-delay", "0")
        self.primary, self.replica = RedisServer(*quick), RedisServer(*quick)
        self.link = Proxy((HOST, self.primary.port))
        self.address = Proxy((HOST, self.primary.port))
        self.of_primary, self.of_replica = self.primary.client(), self.replica.client()
        self.of_replica.replicaof(HOST, self.link.port)
        until(lambda: self.of_replica.info("replication").get("master_link_status") == "up", within=30)

    def url(self, options: str = LEVEL) -> str:
        """Its grace is over."""
        if options:
            opened(self.primary, **dict(pair.split("=") for pair in options.split("&")))
            assert self.of_primary.wait(1, 10_000) == 1
        return f"redis://{HOST}:{self.address.port}/0?{options}"

    def fail(self) -> None:
        """What the replica has not got is lost."""
        self.primary.kill()
        self.of_replica.replicaof("NO", "ONE")
        self.address.lead_to((HOST, self.replica.port))
        self.address.cut()

    def demote_and_promote(self) -> None:
        """The primary, without a sync: its run id and its connections stay."""
        self.of_primary.replicaof(HOST, 1)
        self.of_primary.replicaof("NO", "ONE")

    def close(self) -> None:
        for each in (self.of_primary, self.of_replica, self.address, self.link, self.primary, self.replica):
            each.close()
