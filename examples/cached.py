"""Whatever takes a `lock=` takes a Holdfast lock: here a cache that several threads fill (needs cachetools).

Prints:
    looking up 7
    SEVEN SEVEN
"""

from cachetools import LRUCache, cached

import holdfast
from holdfast.compat.threading import Lock

with holdfast.connect() as client:

    @cached(LRUCache(maxsize=100), lock=Lock(client, "words"))
    def word(number: int) -> str:
        print("looking up", number)
        return "seven".upper()

    print(word(7), word(7))
