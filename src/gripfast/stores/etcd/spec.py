"""What Gripfast knows about this engine before it is used."""

from __future__ import annotations

from collections.abc import Mapping

from gripfast.core.ports import Capabilities
from gripfast.stores import StoreSpec
from gripfast.stores.options import Option

OF_TLS: Mapping[str, Option] = {
    "check_hostname": Option("bool", "the server's certificate must be valid for its host name"),
    "ca": Option("text", "a file of certificates to trust"),
    "certfile": Option("text", "a file with the client's own certificate"),
    "keyfile": Option("text", "a file with the private key of the client's certificate"),
}
"""Only for `etcds://`."""
CAPABILITIES = Capabilities(
    fair=True,
    push=True,
    durable_fence=True,
    lists=True,
    waiters_seen=True,
    processes=True,
    tells_reason=True,
    semaphores=True,
    rwlocks=True,
    downgrades=True,
    keeps=True,
    once=True,
    hands_over=True,
)
SPEC = StoreSpec(
    "etcd",
    "gripfast.stores.etcd.factory",
    schemes=("etcd", "etcds"),
    several_hosts=True,
    extra="etcd",
    options={"root": Option("text", "what the keys of all locks begin with"), **OF_TLS},
    capabilities=CAPABILITIES,
    doctor="gripfast.stores.etcd.doctor",
)
