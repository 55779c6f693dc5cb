"""The SQL of releases that leave the name taken, and of hand-overs. `{now}` is the engine's clock in microseconds.

Both may be repeated: a row that is the marker's, or the adopter's, already stays as it is. A lease that has run out,
and that nobody has taken since, can still be kept: nobody was in between. It can't be adopted any more.
"""

from __future__ import annotations

NOT_DONE = "LEFT(owner, 5) <> 'done:'"
"""A force release leaves alone what is done."""

KEEP_POSTGRES = """
    UPDATE gripfast_lock SET
        expires_us = CASE WHEN owner = :owner THEN {now} + :keep_us::bigint ELSE expires_us END,
        ttl_us = CASE WHEN owner = :owner THEN :keep_us ELSE ttl_us END,
        since_us = CASE WHEN owner = :owner THEN {now} ELSE since_us END,
        owner = :marker
    WHERE name = :name AND owner IN (:owner, :marker) RETURNING 1
"""
ADOPT_POSTGRES = """
    UPDATE gripfast_lock SET
        token = CASE WHEN owner = :owner THEN token ELSE greatest(token + 1, {now}) END,
        expires_us = CASE WHEN owner = :owner THEN greatest(expires_us, {now} + :ttl_us::bigint)
                          ELSE {now} + :ttl_us END,
        since_us = CASE WHEN owner = :owner THEN since_us ELSE {now} END,
        ttl_us = :ttl_us, card = :holder, owner = :owner
    WHERE name = :name AND owner IN (:former, :owner) AND expires_us > {now} RETURNING token
"""

# Assignments are made from left to right: all but `owner` still see the old one.
KEEP_MYSQL = (
    """
    UPDATE gripfast_lock SET
        expires_us = IF(owner = :owner, {now} + :keep_us, expires_us),
        ttl_us = IF(owner = :owner, :keep_us, ttl_us),
        since_us = IF(owner = :owner, {now}, since_us),
        owner = :marker
    WHERE name = :name AND owner IN (:owner, :marker)
    """,
    "SELECT 1 FROM gripfast_lock WHERE name = :name AND owner = :marker",
)
ADOPT_MYSQL = (
    """
    UPDATE gripfast_lock SET
        token = IF(owner = :owner, token, GREATEST(token + 1, {now})),
        since_us = IF(owner = :owner, since_us, {now}),
        expires_us = IF(owner = :owner, GREATEST(expires_us, {now} + :ttl_us), {now} + :ttl_us),
        ttl_us = :ttl_us, card = :holder, owner = :owner
    WHERE name = :name AND owner IN (:former, :owner) AND expires_us > {now}
    """,
    "SELECT token FROM gripfast_lock WHERE name = :name AND owner = :owner AND expires_us > {now}",
)
