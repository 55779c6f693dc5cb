"""A writer that was paused for too long comes back and is refused by the Redis it writes to.

Prints:
    refused: token is stale
    stock is 90
"""

import os

import redis

import gripfast
from gripfast.fencing import write

shop = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://localhost:6379/0"), decode_responses=True)


def set_stock(amount: int, token: int) -> None:
    write(shop, "stock", token, ("SET", "stock", amount))  # one step of the server: check and write, or neither


with gripfast.connect(shop) as client:
    paused = client.lock("stock").acquire()
    client.force_release("stock")  # what a long pause does, too: the lease is over, and its holder has not noticed
    with client.lock("stock") as lease:
        set_stock(90, lease.token)
    try:
        set_stock(101, paused.token)
    except gripfast.StaleToken:
        print("refused: token is stale")

print("stock is", shop.get("stock"))
shop.close()
