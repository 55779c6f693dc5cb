"""A writer that was paused for too long comes back and is refused by the etcd it writes to.

Prints:
    refused: token is stale
    stock is 90
"""

import os

import etcd3gw

import gripfast
from gripfast.fencing import put

host, port = os.environ.get("ETCD", "localhost:2379").split(":")
shop = etcd3gw.client(host=host, port=int(port))


def set_stock(amount: int, token: int) -> None:
    put(shop, "stock", token, "stock", str(amount))  # one transaction: check and write, or neither


with gripfast.connect(f"etcd://{host}:{port}") as client:
    paused = client.lock("stock").acquire()
    client.force_release("stock")  # what a long pause does, too: the lease is over, and its holder has not noticed
    with client.lock("stock") as lease:
        set_stock(90, lease.token)
    try:
        set_stock(101, paused.token)
    except gripfast.StaleToken:
        print("refused: token is stale")

print("stock is", shop.get("stock")[0].decode())
shop.session.close()
