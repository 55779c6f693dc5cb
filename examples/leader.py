"""Two candidates: one leads while it works, then the other. A watcher learns from each leader where it is.

Prints:
    the leader is at host-1:8000
    host-1:8000 has worked
    the leader is at host-2:8000
    host-2:8000 has worked
"""

import threading

import gripfast

client = gripfast.connect()
seen = {"host-1:8000": threading.Event(), "host-2:8000": threading.Event()}


def campaign(address: str) -> None:
    def work(term: gripfast.Lease) -> None:
        while not seen[address].wait(0.1):  # a real leader works here, step by step
            term.ensure_held()  # raises if the term is lost; then run() campaigns again
        print(address, "has worked")

    client.election("scheduler", address, ttl=1).run(work)  # returns when the function does


candidates = [threading.Thread(target=campaign, args=[address]) for address in seen]
candidates[0].start()
for leader in client.election("scheduler", ttl=1).watch():
    if leader is not None:
        print("the leader is at", leader.value)
        if leader.value == "host-2:8000":
            break
        candidates[1].start()
        seen[leader.value].set()  # the first one has done its work, and does not lead any more
seen["host-2:8000"].set()
candidates[1].join()
client.close()
