"""TLS with members: whose certificate is believed, for which host, whose own is shown, and that HTTP/2 is agreed on."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gripfast.errors import ConfigurationError
from gripfast.stores.etcd.dial import tls_context
from gripfast.stores.etcd.messages import DeleteRangeRequest, PutRequest, RangeRequest
from gripfast.stores.faults import Fault
from stores.etcd_stage import COLOURS, new_key, stage
from support.certificates import certificate
from support.etcd_servers import EtcdServer
from support.server_process import HOST


@pytest.fixture(params=COLOURS)
def colour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(scope="module")
def server(made: Path) -> Iterator[EtcdServer]:
    """It wants a certificate of its clients, too."""
    with EtcdServer("--client-cert-auth", f"--trusted-ca-file={made}", certificate=made) as running:
        yield running


def key_of(made: Path) -> str:
    return str(made.with_suffix(".key"))


def test_requests_and_watches_over_tls(colour: str, server: EtcdServer, made: Path) -> None:
    context = tls_context(str(made), str(made), key_of(made))
    with stage(colour, server.address, tls=context) as actor:
        key, large = new_key(), b"x" * 300_000
        put = actor.call(PutRequest(key, large))
        heard = actor.watch(key, put.header.revision)
        assert actor.call(RangeRequest(key)).kvs[0].value == large
        answers = actor.call_many([RangeRequest(key)] * 5)
        assert [each.kvs[0].value for each in answers] == [large] * 5
        actor.call(DeleteRangeRequest(key))
        assert heard.hear().kind == "changed"


def test_a_client_without_a_certificate_is_told(colour: str, server: EtcdServer, made: Path) -> None:
    with stage(colour, server.address, tls=tls_context(str(made))) as actor:
        fault = actor.call(RangeRequest(b"a"))
        assert isinstance(fault, Fault)
        assert fault.error.nodes.keys() == {f"etcds://{server.address}"}


def test_a_certificate_that_nobody_vouches_for_is_refused(colour: str, server: EtcdServer, made: Path) -> None:
    with stage(colour, server.address, tls=tls_context(None, str(made), key_of(made))) as actor:
        fault = actor.call(PutRequest(b"a"))
        assert "check the certificates" in str(fault.error)
        assert not fault.was_sent


def test_a_certificate_for_another_host_is_refused_unless_that_is_wanted(colour: str, tmp_path: Path) -> None:
    other = certificate(tmp_path, names="DNS:elsewhere.example")
    with EtcdServer(certificate=other) as server:
        with stage(colour, server.address, tls=tls_context(str(other))) as actor:
            assert "check the certificates" in str(actor.call(PutRequest(b"a")).error)
        with stage(colour, server.address, tls=tls_context(str(other), check_hostname=False)) as actor:
            assert not isinstance(actor.call(PutRequest(b"a")), Fault)


def test_a_server_that_does_not_agree_on_http2_is_refused(colour: str, made: Path) -> None:
    """A proxy for HTTP/1.1, say."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made, key_of(made))

    def shake_hands() -> None:
        for _ in range(2):
            connection, _address = listening.accept()
            with context.wrap_socket(connection, server_side=True) as wrapped:
                wrapped.recv(1)

    with socket.create_server((HOST, 0)) as listening:
        serving = threading.Thread(target=shake_hands)
        serving.start()
        with stage(colour, f"{HOST}:{listening.getsockname()[1]}", tls=tls_context(str(made))) as actor:
            fault = actor.call(PutRequest(b"a"))
            assert "ALPN" in str(fault.error)
            assert not fault.was_sent
        serving.join()


def test_plain_text_at_a_port_of_tls(colour: str, server: EtcdServer) -> None:
    with stage(colour, server.address) as actor:
        assert isinstance(actor.call(PutRequest(b"a")), Fault)


def test_certificates_that_can_not_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nothing\.pem"):
        tls_context(str(tmp_path / "nothing.pem"))
