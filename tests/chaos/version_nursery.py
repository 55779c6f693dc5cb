"""As `nursery.py`, for the clients of one version: `version_nursery.py NUMBER [blind]`.

The number of every layout is the given one. A blind version does not look at the number that is there: the bug that the
judgement has to notice.
"""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import gripfast.stores.mysql.factory as mysql
import gripfast.stores.postgres.dial as postgres
import gripfast.stores.zookeeper.store as zookeeper
from chaos.nursery import main
from gripfast.stores import layout
from gripfast.stores.faults import LinkDown
from gripfast.stores.redis.dial import Dialer
from gripfast.stores.sql import meeting
from gripfast.stores.sqlite.connections import Connections

KINDS = ("REDIS", "SQL", "SQLITE", "ZOOKEEPER", "ETCD")


def be_blind() -> None:
    """It goes on whatever it finds; tables, files and nodes are made as ever."""
    check_schema = Connections._check_schema

    def open_any(connections: Connections, connection: Any) -> None:
        try:
            check_schema(connections, connection)
        except layout.OtherLayout:
            pass

    def meet_any(dialect: Any, run: Any) -> None:
        try:
            meeting.meet(dialect, run)
        except LinkDown as down:
            if "layout" not in str(down.fault.error):
                raise

    async def find_any(link: Any, session: Any, *_: object, **__: object) -> None:
        session.met = session.life

    Dialer._check_layout = lambda *_: None  # type: ignore[method-assign]
    Connections._check_schema = open_any  # type: ignore[method-assign, assignment]
    mysql.meet = postgres.meet = meet_any  # type: ignore[attr-defined]
    zookeeper.meet = find_any  # type: ignore[attr-defined]


for kind in KINDS:
    assert hasattr(layout, kind)
    setattr(layout, kind, int(sys.argv[1]))
if "blind" in sys.argv:
    be_blind()
main()
