"""Bugs in what is done against failovers: in the grace, and in acknowledgements."""

from __future__ import annotations

from gripfast.stores.redis import followers, grace, requests, script
from gripfast_lab.sim.mutants.planting import Edit, Mutant, Rewrite

GRACE, ACKNOWLEDGED = "failover-1", "failover-2"

_SERVER_IS = f"string.find({script._SERVER}, ARGV[#ARGV - 1], 1, true)"
_HISTORY_IS = f"string.find({script._REPLICATION}, ARGV[#ARGV], 1, true)"
_AND_OPEN = script.IS_OPEN
_OTHER = "of_run ~= run_id or of_replid ~= replid or tonumber(since) > now"
_HANDS_OVER = f"if first[1]{_AND_OPEN} then"
_BELIEVED = "script.is_believed"
_LEFT = "math.max(0, since + max_ttl + ARGV[1] - now)"

FAILOVER = (
    Mutant(
        "no marker check",
        "failover",
        "A server grants whatever its client believes it to be.",
        (Rewrite(_AND_OPEN, ""),),
        GRACE,
    ),
    Mutant(
        "identity by run id alone",
        "failover",
        "A server that was demoted and promoted again counts as the one that it was.",
        (
            Rewrite(f"{_SERVER_IS} and {_HISTORY_IS}", _SERVER_IS),
            Rewrite(_OTHER, _OTHER.replace("of_replid ~= replid or ", "")),
        ),
        GRACE,
    ),
    Mutant(
        "hand-over in grace",
        "failover",
        "In its grace a server hands a released lock to the next waiter.",
        (Rewrite(_HANDS_OVER, "if first[1] then"),),
        GRACE,
    ),
    Mutant(
        "repeated release hands over",
        "failover",
        "A release that finds the lock gone hands it to the next waiter, in a grace, too.",
        (Rewrite(_HANDS_OVER, f"if first[1] and (mine == 0 or (true{_AND_OPEN})) then"),),
        GRACE,
    ),
    Mutant(
        "clean-up hands over in grace",
        "failover",
        "In its grace a server hands a lock that was cleaned up to the next waiter.",
        (Rewrite(f"if not (true{_AND_OPEN} and hand_over()) and holder then", "if not hand_over() and holder then"),),
        GRACE,
    ),
    Mutant(
        "grace from the client's clock",
        "failover",
        "The marker has the time of the first request by the client's clock.",
        (
            Edit(
                grace.Grace._look,
                "mark(self.key(), self.failover, self._max_ttl, opens)",
                'mark(self.key(), self.failover, self._max_ttl)[:-6] + pack(b"%d" % round(self._now() * 1000))',
            ),
            Rewrite("since, why = now, of_run", "since, why = tonumber(ARGV[4]) or now, of_run"),
        ),
        GRACE,
    ),
    Mutant(
        "marker kept from before the promotion",
        "failover",
        "The marker keeps the time of the first request to the server before this one.",
        (Rewrite("since, why = now, of_run", "since, why = since or now, of_run"),),
        GRACE,
    ),
    Mutant(
        "max_ttl ignored",
        "failover",
        "A grace is over when the old primary is, although its leases are not.",
        (Rewrite(_LEFT, "math.max(0, since + ARGV[1] - now)"),),
        GRACE,
    ),
    Mutant(
        "old primary forgotten",
        "failover",
        "A grace does not count for how long the old primary may go on.",
        (Rewrite(_LEFT, "math.max(0, since + max_ttl - now)"),),
        GRACE,
    ),
    Mutant(
        "grace begins anew",
        "failover",
        "Whoever looks at the marker begins another grace.",
        (Rewrite(f"if {_OTHER} then", "if ARGV[4] ~= 'open' then"),),
        GRACE,
    ),
    Mutant(
        "known server is never looked at again",
        "failover",
        "A client that was refused by a server in grace goes on to believe that it is.",
        (Edit(grace.Grace._read, "NO_SERVER if found.left > 0.0 else found.incarnation", "NO_SERVER"),),
        GRACE,
    ),
    Mutant(
        "acknowledgement of one of two",
        "failover",
        "One replica is enough, although another one may be promoted.",
        (
            Edit(followers.Followers._found, "len(have) < self._replicas", "len(have) < 1"),
            Edit(followers.Followers._not_listed, "not missing and not strangers", "not strangers"),
            Edit(followers.wait, 'b"%d" % replicas', 'b"1"'),
        ),
        ACKNOWLEDGED,
    ),
    Mutant(
        "a follower too many",
        "failover",
        "Any follower may acknowledge, although it can't be promoted.",
        (
            Edit(followers.Followers._found, "len(last.followers) > self._replicas", "False"),
            Edit(followers.Followers._not_listed, "not missing and not strangers", "True"),
        ),
        ACKNOWLEDGED,
    ),
    Mutant(
        "followers counted before WAIT only",
        "failover",
        "A server that attaches during WAIT may acknowledge instead of a replica.",
        (
            Edit(followers.Followers._found, "read_role(after)", "read_role(before)"),
            Edit(followers.Followers._found, "offset >= first.offset", "acks >= self._replicas"),
        ),
        ACKNOWLEDGED,
    ),
    Mutant(
        "followers by number",
        "failover",
        "A server that has replaced a replica may acknowledge instead of it.",
        (Edit(followers.Followers._not_listed, "not missing and not strangers", "True"),),
        ACKNOWLEDGED,
    ),
    Mutant(
        "unacknowledged is believed",
        "failover",
        "Nobody looks at how many replicas have acknowledged.",
        (
            Edit(followers.Followers._found, "len(have) < self._replicas", "False"),
            Edit(followers.Followers._not_listed, "not missing and not strangers", "not strangers"),
        ),
        ACKNOWLEDGED,
    ),
    Mutant(
        "claims unconfirmed",
        "failover",
        "Only renewals wait for acknowledgements.",
        (Edit(grace.Grace.guarded, _BELIEVED, f"{_BELIEVED} and script is scripts.RENEW"),),
        ACKNOWLEDGED,
    ),
    Mutant(
        "renewals unconfirmed",
        "failover",
        "Only claims wait for acknowledgements.",
        (Edit(grace.Grace.guarded, _BELIEVED, f"{_BELIEVED} and script is not scripts.RENEW"),),
        ACKNOWLEDGED,
    ),
    Mutant(
        "pushes unconfirmed",
        "failover",
        "A grant that is pushed is believed, although no replica may have it.",
        (Edit(requests.Requests._unless_confirmed, " and self._grace.replicas", " and False"),),
        ACKNOWLEDGED,
    ),
    Mutant(
        "withdrawn push",
        "failover",
        "A push that reached nobody at this server is taken back, and may have reached subscribers of a replica.",
        (
            Rewrite(
                "  if not is_heard(channel) then\n    return false\n  end\n  redis.call('ZREM', line, owner)",
                "  redis.call('ZREM', line, owner)",
            ),
            Rewrite(
                "  redis.call('HDEL', places, owner)\n  return true",
                "  if told == 0 then\n    redis.call('ZADD', line, 0, owner)\n    redis.call('DEL', lock)\n"
                "    return false\n  end\n  redis.call('HDEL', places, owner)\n  return true",
            ),
        ),
        "failover-0",
    ),
)
