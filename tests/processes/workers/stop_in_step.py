"""Claims a permit of the semaphore "api", and stops itself between the two requests of the claim's transaction.

Arguments: URL, limit. When it is continued, it prints what came of the claim.
"""

import os
import signal
import sys
from collections.abc import Sequence

import gripfast
from gripfast.stores.sql.permit_steps import Step
from gripfast.stores.sql.ports import Rows
from gripfast.stores.sql.statement import Query

decide = Step.decide


def stopped(self: Step, answer: list[Rows]) -> Sequence[Query]:
    Step.decide = decide  # type: ignore[method-assign]
    os.kill(os.getpid(), signal.SIGSTOP)
    return decide(self, answer)


def main(url: str, limit: str) -> None:
    with gripfast.connect(url) as client:
        semaphore = client.semaphore("api", limit=int(limit))
        semaphore.acquire().release()
        Step.decide = stopped  # type: ignore[method-assign]
        print("claims")
        try:
            lease = semaphore.acquire(wait=0.2)
        except gripfast.GripfastError as error:
            print(type(error).__name__)
        else:
            print("held", lease.token)
            sys.stdin.read()


main(*sys.argv[1:])
