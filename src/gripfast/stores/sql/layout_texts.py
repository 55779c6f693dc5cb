"""The SQL by which the number of the tables' layout is read and written, the same for both engines.

Its row is not a lock: no lock can have its name or its mode. Its token is never old, so no sweep forgets it.
"""

from __future__ import annotations

from gripfast.stores.sql.statement import ByMode, Script

NEVER_OLD = 2**53


def layout_scripts(name: str, insert: str, otherwise: str = "") -> tuple[ByMode, ByMode]:
    """To read and to write it. `name`: of the row in gripfast_lock; the others: how to insert what may be there."""
    read_lease = Script("", f"SELECT card FROM gripfast_lock WHERE name = {name}")
    read_session = Script("", "SELECT card FROM gripfast_grant WHERE mode = 'layout' AND name = ''")
    write_lease = Script(
        "number",
        f"""{insert} INTO gripfast_lock
        (name, token, owner, expires_us, ttl_us, since_us, card, broken, waited_until_us, checked_us)
        VALUES ({name}, {NEVER_OLD}, NULL, 0, 0, 0, :number, NULL, 0, {NEVER_OLD}) {otherwise}""",
    )
    write_session = Script(
        "number",
        f"""{insert} INTO gripfast_grant (mode, name, token, owner, session, mark, ttl_us, since_us, card)
        VALUES ('layout', '', {NEVER_OLD}, '', 0, '', 0, 0, :number) {otherwise}""",
    )
    return (
        ByMode(lease=read_lease, row=read_session, advisory=read_session),
        ByMode(lease=write_lease, row=write_session, advisory=write_session),
    )
