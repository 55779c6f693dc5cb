"""What Gripfast knows about this engine before it is used."""

from __future__ import annotations

from collections.abc import Mapping

from gripfast.core.ports import Capabilities
from gripfast.stores import StoreSpec
from gripfast.stores.options import Option

OF_THE_DRIVER: Mapping[str, Option] = {
    "use_ssl": Option("bool", "connect by TLS"),
    "verify_certs": Option("bool", "the server's certificate must be trusted"),
    "check_hostname": Option("bool", "the server's certificate must be valid for its host name"),
    "ca": Option("text", "a file of certificates to trust"),
    "certfile": Option("text", "a file with the client's own certificate"),
    "keyfile": Option("text", "a file with the private key of the client's certificate"),
    "keyfile_password": Option("text", "the password of the private key"),
}
"""Settings of kazoo's client."""
CAPABILITIES = Capabilities(
    fair=True,
    push=True,
    session=True,
    durable_fence=True,
    lists=True,
    waiters_seen=True,
    processes=True,
    tells_reason=True,
    semaphores=True,
    rwlocks=True,
    downgrades=True,
)
SPEC = StoreSpec(
    "zookeeper",
    "gripfast.stores.zookeeper.factory",
    schemes=("zookeeper",),
    several_hosts=True,
    clients=("kazoo.client.KazooClient",),
    extra="zookeeper",
    options={"root": Option("text", "the path below which locks are kept"), **OF_THE_DRIVER},
    capabilities=CAPABILITIES,
    doctor="gripfast.stores.zookeeper.doctor",
)
