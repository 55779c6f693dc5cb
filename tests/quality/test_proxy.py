"""The proxy of the tests does what its methods say, to the byte: faults are only as good as their injector."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest

from support.proxy import CHUNK, HELD_MOST, Direction, Proxy
from support.waiting import until

PATIENCE = 5.0


class Echo:
    """A server that answers every byte with the same byte, and remembers what it read."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        self.heard = bytearray()
        self.ended = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(peer,), daemon=True).start()

    def _answer(self, peer: socket.socket) -> None:
        with peer:
            try:
                while data := peer.recv(4096):
                    self.heard += data
                    peer.sendall(data)
            except OSError:
                pass
        self.ended += 1

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    with closing(Echo()) as echo:
        yield echo


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Proxy]:
    with Proxy(echo.address) as proxy:
        yield proxy


@pytest.fixture
def peer(proxy: Proxy) -> Iterator[socket.socket]:
    with connected(proxy) as peer:
        yield peer


def connected(proxy: Proxy) -> socket.socket:
    return socket.create_connection((proxy.host, proxy.port), timeout=PATIENCE)


def heard(peer: socket.socket, count: int) -> bytes:
    """This many bytes, or fewer if the connection ended before."""
    data = b""
    while len(data) < count:
        try:
            more = peer.recv(count - len(data))
        except ConnectionError:
            break
        if not more:
            break
        data += more
    return data


def ended(peer: socket.socket) -> bool:
    return heard(peer, 1) == b""


def test_bytes_pass_in_both_directions_and_are_counted(proxy: Proxy, peer: socket.socket) -> None:
    peer.sendall(b"hello")
    assert heard(peer, 5) == b"hello"
    assert [proxy.arrived("requests"), proxy.passed("requests"), proxy.passed("replies")] == [5, 5, 5]
    assert [proxy.connections, proxy.open_connections, proxy.held("replies")] == [1, 1, 0]


def test_a_lot_passes_unchanged(proxy: Proxy, peer: socket.socket) -> None:
    data = bytes(range(256)) * 8000
    sender = threading.Thread(target=peer.sendall, args=(data,))
    sender.start()
    assert heard(peer, len(data)) == data
    sender.join()


def test_the_end_of_one_side_reaches_the_other(echo: Echo, proxy: Proxy, peer: socket.socket) -> None:
    peer.sendall(b"bye")
    peer.shutdown(socket.SHUT_WR)
    assert heard(peer, 10) == b"bye"
    until(lambda: echo.ended == 1)
    until(lambda: proxy.open_connections == 0)


@pytest.mark.parametrize("way", ["requests", "replies"])
def test_a_delay_is_kept_and_taken_away_again(proxy: Proxy, peer: socket.socket, way: Direction) -> None:
    proxy.delay(**{way: 0.1})
    sent = time.monotonic()
    peer.sendall(b"a")
    peer.sendall(b"b")
    until(lambda: proxy.arrived(way) == 2)
    proxy.delay()
    peer.sendall(b"c")
    assert heard(peer, 3) == b"abc"
    assert time.monotonic() - sent >= 0.1


def test_held_replies_come_when_they_are_let_go(echo: Echo, proxy: Proxy, peer: socket.socket) -> None:
    proxy.hold("replies")
    peer.sendall(b"one")
    until(lambda: proxy.held("replies") == 3)
    peer.sendall(b"two")
    until(lambda: proxy.held("replies") == 6)
    assert bytes(echo.heard) == b"onetwo"
    assert proxy.passed("replies") == 0
    proxy.let_go()
    assert heard(peer, 6) == b"onetwo"


def test_who_sends_more_than_is_held_has_to_wait(proxy: Proxy, peer: socket.socket) -> None:
    """A proxy that read on for ever would take whatever a caller's system could not."""
    proxy.hold("requests")
    peer.settimeout(0.2)
    with pytest.raises(TimeoutError):
        peer.sendall(bytes(60_000_000))
    assert HELD_MOST <= proxy.held("requests") < HELD_MOST + CHUNK


def test_held_requests_do_not_reach_the_server(echo: Echo, proxy: Proxy, peer: socket.socket) -> None:
    proxy.hold("requests")
    peer.sendall(b"one")
    until(lambda: proxy.held("requests") == 3)
    assert not echo.heard
    proxy.let_go()
    assert heard(peer, 3) == b"one"


def test_a_black_hole_accepts_and_says_nothing(echo: Echo, proxy: Proxy, peer: socket.socket) -> None:
    proxy.black_hole()
    with connected(proxy) as late:
        for each in (peer, late):
            each.sendall(b"x")
        until(lambda: proxy.held("requests") == 2)
        assert not echo.heard
        proxy.let_go()
        assert [heard(each, 1) for each in (peer, late)] == [b"x", b"x"]


def test_a_cut_ends_every_connection_on_both_sides(echo: Echo, proxy: Proxy, peer: socket.socket) -> None:
    with connected(proxy) as other:
        for each in (peer, other):
            each.sendall(b"x")
            heard(each, 1)
        proxy.cut()
        assert proxy.open_connections == 0
        assert ended(peer)
        assert ended(other)
    until(lambda: echo.ended == 2)


def test_what_is_held_is_lost_by_a_cut(proxy: Proxy, peer: socket.socket) -> None:
    proxy.hold("replies")
    peer.sendall(b"one")
    until(lambda: proxy.held("replies") == 3)
    proxy.cut()
    proxy.let_go()
    assert ended(peer)
    assert proxy.held("replies") == 0


@pytest.mark.parametrize("count", [0, 1, 4, 5])
def test_exactly_so_many_bytes_of_the_replies_pass(echo: Echo, proxy: Proxy, peer: socket.socket, count: int) -> None:
    proxy.cut_after(count, "replies")
    peer.sendall(b"hello")
    assert heard(peer, 6) == b"hello"[:count]
    assert bytes(echo.heard) == b"hello"
    assert not proxy.armed()


@pytest.mark.parametrize("count", [0, 1, 4, 5])
def test_exactly_so_many_bytes_of_the_requests_pass(echo: Echo, proxy: Proxy, peer: socket.socket, count: int) -> None:
    proxy.cut_after(count, "requests")
    peer.sendall(b"hello")
    assert ended(peer) or count
    until(lambda: echo.ended == 1)
    assert bytes(echo.heard) == b"hello"[:count]


def test_bytes_are_counted_over_connections_and_one_is_cut(proxy: Proxy, peer: socket.socket) -> None:
    with connected(proxy) as other:
        proxy.cut_after(4, "replies")
        peer.sendall(b"abc")
        assert heard(peer, 3) == b"abc"
        assert proxy.armed()
        other.sendall(b"xyz")
        assert heard(other, 3) == b"x"
        peer.sendall(b"def")
        assert heard(peer, 3) == b"def"


def test_the_nth_reply_is_dropped_and_its_connection_cut(echo: Echo, proxy: Proxy, peer: socket.socket) -> None:
    proxy.drop_reply(2)
    peer.sendall(b"one")
    assert heard(peer, 3) == b"one"
    peer.sendall(b"two")
    assert ended(peer)
    assert bytes(echo.heard) == b"onetwo"
    with connected(proxy) as next_one:
        next_one.sendall(b"three")
        assert heard(next_one, 5) == b"three"


def test_a_cut_that_did_not_happen_can_be_called_off(proxy: Proxy, peer: socket.socket) -> None:
    proxy.cut_after(2, "requests")
    proxy.drop_reply()
    proxy.spare()
    peer.sendall(b"hello")
    assert heard(peer, 5) == b"hello"


def test_new_connections_are_refused_and_old_ones_stand(proxy: Proxy, peer: socket.socket) -> None:
    peer.sendall(b"a")
    assert heard(peer, 1) == b"a"
    proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        connected(proxy)
    peer.sendall(b"b")
    assert heard(peer, 1) == b"b"
    proxy.accept()
    with connected(proxy) as late:
        late.sendall(b"c")
        assert heard(late, 1) == b"c"


def test_a_server_that_is_not_there_ends_the_connection(echo: Echo) -> None:
    echo.close()
    with Proxy(echo.address) as proxy, connected(proxy) as peer:
        assert ended(peer)
        until(lambda: proxy.open_connections == 0)


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    until(lambda: not any(thread.name == "proxy" for thread in threading.enumerate()))


def test_what_is_to_be_replaced_arrives_replaced(echo: Echo, proxy: Proxy) -> None:
    proxy.replace(b"before", b"behind")
    with socket.create_connection((proxy.host, proxy.port), timeout=PATIENCE) as client:
        client.sendall(b"the one before me")
        until(lambda: echo.heard == b"the one behind me")


def test_a_patient_proxy_waits_for_its_target() -> None:
    with socket.socket() as later:
        later.bind(("127.0.0.1", 0))  # and listens to nobody
        with Proxy(later.getsockname(), patience=PATIENCE) as proxy:
            with socket.create_connection((proxy.host, proxy.port), timeout=PATIENCE) as client:
                client.sendall(b"x")
                later.listen()
                later.settimeout(PATIENCE)
                peer, _ = later.accept()
                with closing(peer):
                    assert peer.recv(1) == b"x"
