"""Whose certificate a server shows is looked at, and for which host it was made."""

import contextlib
import gc
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import gripfast
from support.certificates import certificate
from support.waiting import until

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # kazoo leaves sockets to the collector

NAMED, UNNAMED = "127.0.0.1", "127.0.0.2"
"""Hosts that are, and are not, in the certificate."""


class Listener:
    """Shakes hands, and says nothing after that."""

    def __init__(self, host: str, certificate: Path) -> None:
        self.greeted = 0
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate, certificate.with_suffix(".key"))
        self._socket = socket.create_server((host, 0))
        self.address = f"{host}:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                with contextlib.suppress(OSError), self._context.wrap_socket(connection, server_side=True) as greeted:
                    greeted.recv(1)  # who does not like the certificate says so now
                    self.greeted += 1

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()


@contextlib.contextmanager
def listening(host: str, made: Path) -> Iterator[Listener]:
    listener = Listener(host, made)
    try:
        yield listener
    finally:
        listener.close()
        gc.collect()  # here, where what kazoo has left open is expected


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificate(tmp_path_factory.mktemp("certificate"))


def trouble(client: gripfast.Client) -> str:
    """What is said of the servers; little before the first attempt to connect has ended."""
    with pytest.raises(gripfast.StoreUnavailable) as caught:
        client.lock("job").try_acquire()
    return str(caught.value)


def test_a_certificate_for_another_host_is_refused(made: Path) -> None:
    """kazoo takes it unless it is told to look."""
    with listening(UNNAMED, made) as listener:
        url = f"zookeeper://{listener.address}?use_ssl=1&ca={made}"
        with gripfast.connect(url, request_timeout=0.3) as client:
            until(lambda: "certificate" in trouble(client).lower(), within=10)
        assert listener.greeted == 0


@pytest.mark.parametrize(
    ("host", "options"), [(NAMED, ""), (UNNAMED, "&check_hostname=0"), (UNNAMED, "&verify_certs=0")]
)
def test_a_certificate_is_taken_if_it_fits_or_nobody_looks(host: str, options: str, made: Path) -> None:
    with listening(host, made) as listener:
        url = f"zookeeper://{listener.address}?use_ssl=1&ca={made}{options}"
        with gripfast.connect(url, request_timeout=0.3) as client:
            assert trouble(client)
            until(lambda: listener.greeted)
