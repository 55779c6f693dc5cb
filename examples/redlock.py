"""One lock on three Redis servers, one of which is down (needs the other two; new ones vote only after a minute).

Prints:
    alone, with token: True
    the next token is larger: True
    nobody has it: True
"""

import os

import gripfast

nodes = os.environ.get("REDLOCK_NODES", "localhost:6379,localhost:6380,localhost:6381").split(",")
nodes[-1] = "localhost:1"  # nobody is there: the client waits for it only once, then probes it in the background

with gripfast.connect([f"redis://{node}" for node in nodes], prefix="example:") as client:
    with client.lock("deploy", ttl=10) as lease:
        print("alone, with token:", lease.token > 0)
    with client.lock("deploy", ttl=10) as after:
        print("the next token is larger:", after.token > lease.token)
    print("nobody has it:", client.inspect("deploy") is None)
