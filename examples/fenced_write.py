"""A writer that was paused for too long comes back and is refused by the database it writes to.

Prints:
    refused: token is stale
    stock is 90
"""

import sqlite3

import gripfast
from gripfast.fencing import guard, schema

shop = sqlite3.connect(":memory:")
shop.execute("CREATE TABLE stock (amount INTEGER)")
shop.execute("INSERT INTO stock VALUES (100)")
shop.execute(schema("sqlite"))
shop.commit()


def set_stock(amount: int, token: int) -> None:
    with shop:  # one transaction: check and write, or neither
        guard(shop, "stock", token)
        shop.execute("UPDATE stock SET amount = ?", (amount,))


with gripfast.connect() as client:
    paused = client.lock("stock").acquire()
    client.force_release("stock")  # what a long pause does, too: the lease is over, and its holder has not noticed
    with client.lock("stock") as lease:
        set_stock(90, lease.token)
    try:
        set_stock(101, paused.token)
    except gripfast.StaleToken:
        print("refused: token is stale")

print("stock is", *shop.execute("SELECT amount FROM stock").fetchone())
shop.close()
