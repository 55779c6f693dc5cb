"""The client/server protocol: any answer a server can give is read, however the network cuts it into pieces."""

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gripfast.stores.mysql.packets import ALLOW_SEVERAL_STATEMENTS, AnswerReader, ProtocolBroken, literal, query
from gripfast.stores.sql.ports import Answer, Refusal, Rows
from gripfast.stores.sql.statement import Query, Statement, Value

MORE_FOLLOWS = 8
Result = Rows | Refusal


def size(number: int) -> bytes:
    for most, mark, width in ((250, b"", 1), (0xFFFF, b"\xfc", 2), (0xFFFFFF, b"\xfd", 3)):
        if number <= most:
            return mark + number.to_bytes(width, "little")
    return b"\xfe" + number.to_bytes(8, "little")


def column(value: bytes | None) -> bytes:
    return b"\xfb" if value is None else size(len(value)) + value


def end(status: int) -> bytes:
    return b"\xfe\0\0" + status.to_bytes(2, "little")


def payloads(results: list[Result]) -> Iterator[bytes]:
    """As a server would write them."""
    for place, result in enumerate(results):
        status = 2 | (MORE_FOLLOWS if place + 1 < len(results) else 0)
        if isinstance(result, Refusal):
            yield b"\xff" + int(result.code).to_bytes(2, "little") + b"#HY000" + result.message.encode()
            return
        if not result.rows:
            yield b"\0" + size(result.affected) + size(0) + status.to_bytes(2, "little") + b"\0\0"
            continue
        yield size(len(result.rows[0]))
        yield from [column(b"def") + column(b"") * 5 + b"\x0c" + b"\0" * 12] * len(result.rows[0])
        yield end(status)
        yield from (b"".join(map(column, row)) for row in result.rows)
        yield end(status)


def packets(parts: Iterator[bytes] | list[bytes], first: int = 1) -> bytes:
    return b"".join(
        len(part).to_bytes(3, "little") + bytes([place & 0xFF]) + part for place, part in enumerate(parts, first)
    )


def read(data: bytes, cuts: list[int]) -> Answer | None:
    """The answer, from the pieces between the cuts. Nothing is told before the last one."""
    reader = AnswerReader()
    places = [0, *sorted({cut % len(data) for cut in cuts if cut % len(data)}), len(data)]
    pieces = [data[start:stop] for start, stop in itertools.pairwise(places)]
    for piece in pieces[:-1]:
        assert reader.feed(piece) is None
    return reader.feed(pieces[-1])


values = (
    st.none() | st.binary(max_size=40) | st.sampled_from([b"\xfe", b"\xff" * 9, b"x" * 250, b"y" * 251, b"z" * 70_000])
)
tables = st.integers(1, 4).flatmap(lambda width: st.lists(st.tuples(*[values] * width), min_size=1, max_size=5))
row_sets = tables.map(lambda rows: Rows(rows, len(rows)))
writes = st.sampled_from([0, 1, 250, 251, 70_000, 20_000_000]).map(lambda count: Rows([], count))
refusals = st.builds(Refusal, st.just("retry"), st.just("1213"), st.text(max_size=20))
cuts = st.lists(st.integers(0, 2**20), max_size=12)


@given(st.lists(row_sets | writes, min_size=1, max_size=5), cuts)
def test_any_splitting_gives_the_same_answer(results: list[Result], cuts: list[int]) -> None:
    assert read(packets(payloads(results)), cuts) == results


@given(st.lists(row_sets | writes, max_size=3), refusals, cuts)
def test_an_error_between_results_is_the_whole_answer(results: list[Result], refusal: Refusal, cuts: list[int]) -> None:
    assert read(packets(payloads([*results, refusal])), cuts) == refusal


def test_each_byte_by_itself_is_an_answer_too() -> None:
    results: list[Result] = [Rows([], 1), Rows([(b"a", None), (b"", b"b" * 300)], 2)]
    data = packets(payloads(results))
    assert read(data, list(range(len(data)))) == results


@pytest.mark.parametrize("rows", [0, 3], ids=["among the columns", "among the rows"])
def test_an_error_may_come_in_the_middle_of_a_result(rows: int) -> None:
    whole = list(payloads([Rows([(b"1",)] * 3, 3)]))
    error = b"\xff" + (1317).to_bytes(2, "little") + b"#70100Query execution was interrupted"
    data = packets([*whole[: 2 + bool(rows) + rows], error])
    assert read(data, []) == Refusal("broken_off", "1317", "Query execution was interrupted")


def test_more_than_256_packets_are_counted_from_0_again() -> None:
    results: list[Result] = [Rows([(b"%d" % number,) for number in range(700)], 700)]
    assert read(packets(payloads(results)), [100, 2000]) == results


def test_a_row_that_starts_like_an_end_is_a_row() -> None:
    long = b"v" * 2**24
    rows: list[tuple[bytes | None, ...]] = [(b"",), (None,), (b"\xfe" * 4,)]
    assert read(packets(payloads([Rows(rows, 3)])), []) == [Rows(rows, 3)]
    with pytest.raises(ProtocolBroken, match="16 MB"):  # its length would begin with the byte of an end
        read((0xFFFFFF).to_bytes(3, "little") + b"\x01" + long, [])


def test_an_error_without_a_state_is_read() -> None:
    assert read(packets([b"\xff\x10\x04Too many connections"]), []) == Refusal("full", "1040", "Too many connections")


def test_a_server_that_goes_down_counts_its_error_from_0() -> None:
    data = packets([b"\xff\x1d\x04#08S01Server shutdown in progress"], first=0)
    assert read(data, []) == Refusal("gone", "1053", "Server shutdown in progress")


def test_a_session_that_is_not_there_to_be_ended_is_no_error() -> None:
    assert read(packets([b"\xff\x46\x04#HY000Unknown thread id: 7"]), []) == [Rows([], 0)]


@pytest.mark.parametrize("number", [1, 250, 251, 70_000, 1794755264733780])
def test_a_number_that_a_write_hands_on_is_told_as_a_row(number: int) -> None:
    data = packets([b"\0" + size(2) + size(number) + b"\x02\0\0\0"])
    assert read(data, [3]) == [Rows([(b"%d" % number,)], 2)]


def test_the_end_alone_is_the_answer_to_an_option() -> None:
    assert ALLOW_SEVERAL_STATEMENTS == b"\x03\0\0\0" + b"\x1b" + b"\0\0"
    assert read(packets([end(2)]), []) == [Rows([], 0)]


BROKEN: dict[str, bytes] = {
    "an empty packet": packets([b""]),
    "a packet that was not due": packets([b"\0\0\0\x02\0\0\0"], first=5),
    "a file is wanted": packets([b"\xfb/etc/passwd"]),
    "an OK without its status": packets([b"\0\0\0"]),
    "an end without its status": packets([b"\xfe\0\0"]),
    "a column longer than its row": packets([b"\x01", b"\x03def", end(2), b"\x05ab"]),
    "a number that is cut off": packets([b"\0\xfc\x01"]),
    "a number of no known width": packets([b"\0\xff\x01\0\0\0\0"]),
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
def test_what_is_no_answer_is_told_as_a_broken_connection(data: bytes) -> None:
    with pytest.raises(ProtocolBroken):
        read(data, [])


@given(st.binary(min_size=1, max_size=60))
def test_whatever_arrives_is_an_answer_or_breaks_the_connection(data: bytes) -> None:
    try:
        AnswerReader().feed(data)
    except ConnectionError:
        pass


LITERALS: list[tuple[Value, bytes]] = [
    (None, b"NULL"),
    (0, b"0"),
    (-17, b"-17"),
    (1794755264733780, b"1794755264733780"),
    (2.5, b"2.5"),
    ("", b"x''"),
    ("it's -- ;", b"x'69742773202d2d203b'"),
    ("ö", b"x'c3b6'"),
    (b"\0\xff", b"x'00ff'"),
]


@pytest.mark.parametrize("value, written", LITERALS)
def test_values_are_written_so_that_nothing_in_them_has_a_meaning(value: Value, written: bytes) -> None:
    assert literal(value) == written


@given(st.text() | st.binary())
def test_text_becomes_nothing_but_hex_digits(value: str | bytes) -> None:
    written = literal(value)
    assert bytes.fromhex(written[2:-1].decode()) == (value.encode() if isinstance(value, str) else value)
    assert written[:2] == b"x'"
    assert written[-1:] == b"'"


def test_a_request_is_one_packet_with_all_its_statements() -> None:
    queries = [Query(Statement("SELECT :one, :two"), {"one": 1, "two": "b"}), Query(Statement("SELECT 2"))]
    text = b"SELECT 1, x'62';SELECT 2"
    assert query(queries) == bytes([len(text) + 1, 0, 0, 0, 3]) + text


def test_a_request_of_16_mb_is_refused() -> None:
    with pytest.raises(ValueError, match="too large"):
        query([Query(Statement("SELECT :much"), {"much": b"x" * 2**23})])
