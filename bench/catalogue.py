"""Every scenario there is. A new one joins by an entry here."""

from bench.embedded import EMBEDDED_PAIR, EMBEDDED_PAIR_ASYNC
from bench.hand_off import EMBEDDED_HAND_OFF
from bench.memory import MEMORY_PAIR
from bench.scenario import Scenario

CATALOGUE: tuple[Scenario, ...] = (EMBEDDED_PAIR, EMBEDDED_PAIR_ASYNC, MEMORY_PAIR, EMBEDDED_HAND_OFF)
