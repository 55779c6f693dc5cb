"""A Gripfast lock works wherever code takes a `lock=`: here for a cache that several threads fill (needs cachetools).

Prints:
    looking up 7
    SEVEN SEVEN
"""

from cachetools import LRUCache, cached

import gripfast
from gripfast.compat.threading import Lock

with gripfast.connect() as client:

    @cached(LRUCache(maxsize=100), lock=Lock(client, "words"))
    def word(number: int) -> str:
        print("looking up", number)
        return "seven".upper()

    print(word(7), word(7))
