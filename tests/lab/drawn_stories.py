"""Stories written by hand, one for each thing that a picture has to show."""

from gripfast_lab.story import Arrow, Bar, Broken, Lane, Moment, Story

A, B, C = Lane("A", "client"), Lane("B", "client"), Lane("C", "client")
REDIS = Lane("redis", "node")
NODES = tuple(Lane(f"n{number}", "node") for number in range(1, 6))
WORLD = Lane("world", "world")


def asked(lane: str, text: str, back: str, sign: str = "ask", at: float | None = None) -> Moment:
    arrow = Arrow(lane, "redis", text, back)
    return Moment(lane, sign, f"{lane}: {text} → {back}", text, at, (arrow,))  # type: ignore[arg-type]


def paused_holder() -> Story:
    """Exclusion: a holder is paused for longer than its time to live."""
    moments = (
        asked("A", "SET lock A NX PX 30000", "OK", "enter", 0.0),
        Moment("A", "pause", "A is paused: its machine has no time for it", "paused", 0.1),
        Moment("world", "time", "30 seconds pass, and the key expires", "30 s pass", 30.1),
        asked("B", "SET lock B NX PX 30000", "OK", "enter", 31.0),
        Moment("A", "resume", "A goes on and believes that it holds the lock", "goes on", 32.0),
        asked("A", "EVAL compare-and-delete A", "0", "leave", 33.0),
    )
    bars = (Bar("A", 0, 5, token=33), Bar("B", 3, token=34))
    text = "A and B hold the lock at the same time. A can't know it: its clock stood still while it was paused."
    return Story(
        "paused-holder",
        "SET NX PX, with a holder that is paused",
        (A, B, REDIS, WORLD),
        moments,
        bars,
        Broken("exclusion", text, ("A", "B"), 3, 5),
    )


def crashed_holder() -> Story:
    """Progress: nobody ever removes the lock of one that has crashed."""
    lost = Arrow("B", "redis", "SETNX lock B", "", is_lost=True)
    deaf = Arrow("C", "redis", "SETNX lock C", "0", is_back_lost=True)
    moments = (
        asked("A", "SETNX lock A", "1", "enter"),
        Moment("A", "crash", "A crashes before EXPIRE", "crashes"),
        Moment("B", "lost", "B: SETNX lock B is lost on its way", "lost", arrows=(lost,)),
        Moment("C", "lost", "C: SETNX lock C; the answer is lost", "lost", arrows=(deaf,)),
        asked("B", "SETNX lock B", "0", "refused"),
        asked("C", "SETNX lock C", "0", "refused"),
    )
    text = "B and C wait for ever: the lock of A has no time to live, and A will never release it."
    return Story(
        "crashed-holder",
        "SETNX then EXPIRE, with a crash in between",
        (A, B, C, REDIS),
        moments,
        (Bar("A", 0, 1),),
        Broken("progress", text, ("B", "C"), 4),
        goes_on="B and C ask again and are refused, for ever",
    )


def redlock_round(lane: str, answers: str) -> tuple[Arrow, ...]:
    """One letter for each node: y, n, l (the request is lost), a (the answer is), - (it is not asked)."""
    words = {"y": "OK", "n": "no", "l": "", "a": "OK"}
    return tuple(
        Arrow(lane, node.name, f"SET lock {lane} NX", words[answer], answer == "l", answer == "a")
        for node, answer in zip(NODES, answers, strict=True)
        if answer != "-"
    )


def restarted_node() -> Story:
    """Exclusion on five nodes: rounds, a node that comes back empty, and a jumped clock."""
    moments = (
        Moment("A", "enter", "A asks all nodes and has 3 of 5 votes", "3 of 5", arrows=redlock_round("A", "yyyla")),
        Moment("n3", "crash", "n3 crashes", "crashes"),
        Moment("n3", "restart", "n3 comes back without its memory", "back, empty"),
        Moment("n2", "jump", "the clock of n2 jumps 30 s ahead", "+30 s"),
        Moment("B", "enter", "B asks all nodes and has 3 of 5 votes", "3 of 5", arrows=redlock_round("B", "nnyyy")),
    )
    return Story(
        "redlock-restart",
        "Redlock with a restarted node",
        (A, B, *NODES),
        moments,
        (Bar("A", 0, token=7), Bar("B", 4, token=8)),
        Broken("exclusion", "A and B both have a majority, and n3 has voted for both.", ("A", "B"), 4, None),
    )


def token_that_went_down() -> Story:
    moments = (
        asked("A", "INCR counter", "8", "enter"),
        asked("A", "DEL lock", "1", "leave"),
        Moment("redis", "restart", "a replica takes over that does not know the last write", "replica takes over"),
        asked("B", "INCR counter", "8", "enter"),
        asked("B", "DEL lock", "1", "leave"),
    )
    return Story(
        "tokens",
        "A counter on a primary whose replica takes over",
        (A, B, REDIS),
        moments,
        (Bar("A", 0, 1, token=8), Bar("B", 3, 4, token=8)),
        Broken("token", "B got the token 8, which A had before: the resource can't tell them apart.", ("A", "B")),
    )


def long_story(moments: int = 64) -> Story:
    """As a failing seed of the simulation may be: many moments, long tokens, seconds."""
    told: list[Moment] = []
    bars: list[Bar] = []
    for turn in range(moments // 4):
        lane = ("p0/a", "p1/a", "p1/b")[turn % 3]
        at = turn * 1.3711
        arrow = Arrow(lane, "node", "acquire", "granted")
        told += [
            Moment(lane, "enter", f"{lane} asks for 'job' and is granted it", "granted", at, (arrow,)),
            Moment("node", "slow", "late push: for 0.4 s", "late push", at + 0.1),
            Moment("node", "cut", "cut back n1 n4", "cut", at + 0.2),
            Moment(lane, "leave", f"{lane} gives it back", "released", at + 1.0),
        ]
        bars.append(Bar(lane, turn * 4, turn * 4 + 3, token=1_700_000_000_000_000 + turn))
    bars[-1] = Bar("p0/a", bars[-2].begins + 1, token=1_700_000_000_000_077)
    lanes = (*(Lane(name, "client") for name in ("p0/a", "p1/a", "p1/b")), Lane("node", "node"))
    return Story("seed-46", "Seed 46 of redis", lanes, tuple(told), tuple(bars), Broken("overlap", "two at a time"))


def odd_story() -> Story:
    """Names and texts of others."""
    bad = "<b>&amp;\"'\x1b[31m\x00\u202e\ud800"
    lanes = (Lane(f"A{bad}", "client"), Lane("订单服务", "client"), Lane("🗄️]]>", "node"))
    arrow = Arrow(lanes[0].name, lanes[2].name, f"SET {bad}", "</svg>")
    moments = (
        Moment(lanes[0].name, "enter", f"{bad} holds </text><script>alert(1)</script>", bad, 0.5, (arrow,)),
        Moment(lanes[1].name, "enter", "订单服务拿到了锁,因为过期时间已经到了" * 4, "拿到锁", 1.5),
        Moment("nobody", "time", "-->" * 30, "-->"),
    )
    bars = (Bar(lanes[0].name, 0, token=1), Bar(lanes[1].name, 1, token=2))
    broken = Broken("exclusion", bad, (lanes[0].name, lanes[1].name), 1, None)
    return Story(f"odd{bad}", f"Odd {bad}", lanes, moments, bars, broken, goes_on=bad)


def empty_story() -> Story:
    return Story("nothing", "Nothing happens", (A, REDIS), (), ())


STORIES = {
    make.__name__: make()
    for make in (
        paused_holder,
        crashed_holder,
        restarted_node,
        token_that_went_down,
        long_story,
        odd_story,
        empty_story,
    )
}
