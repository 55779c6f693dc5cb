"""A process of the load test: under Gripfast's lock it adds to a number, so many times."""

import sys

import redis

import gripfast


def main(url: str, store_url: str, counter: str, ttl: str, times: str) -> None:
    with gripfast.connect(url) as client, redis.Redis.from_url(store_url) as store:
        for _ in range(int(times)):
            with client.lock("job", ttl=float(ttl)).acquire(wait=50):
                number = int(store.get(counter) or 0)
                store.ping()
                store.set(counter, number + 1)


main(*sys.argv[1:])
