from __future__ import annotations

import socket
import ssl
import threading
from pathlib import Path

import pytest
from trustme import CA

from tools.certificates import serving_pair


def serve_once(listener: socket.socket, trust: ssl.SSLContext) -> None:
    connection, _ = listener.accept()
    try:
        with trust.wrap_socket(connection, server_side=True) as secure:
            secure.sendall(b"hello")
    except ssl.SSLError:
        connection.close()


def pem_of(authority: CA) -> str:
    return authority.cert_pem.bytes().decode()


def handshake(tmp_path: Path, *, served: list[str], asked: str, trusted: str | None = None) -> bytes:
    """Serve a certificate for some names, and connect as a strict client that asks for one."""
    authority = CA()
    pair = serving_pair(authority, *served)
    (tmp_path / "pair.pem").write_bytes(pair.key_pem + pair.public_pem)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "pair.pem")
    client = ssl.create_default_context(cadata=trusted or pem_of(authority))
    # Python 3.13 sets this by default.
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve_once, args=(listener, server))
        thread.start()
        try:
            with (
                socket.create_connection(listener.getsockname()) as plain,
                client.wrap_socket(plain, server_hostname=asked) as secure,
            ):
                return secure.recv(5)
        finally:
            thread.join()


@pytest.mark.parametrize("asked", ["127.0.0.1", "localhost"])
def test_a_strict_client_trusts_the_certificate_for_its_names_and_addresses(tmp_path: Path, asked: str) -> None:
    assert handshake(tmp_path, served=["127.0.0.1", "localhost"], asked=asked) == b"hello"


def test_a_name_that_is_not_in_the_certificate_is_not_trusted(tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(tmp_path, served=["127.0.0.1", "localhost"], asked="elsewhere")


def test_another_authority_does_not_vouch_for_it(tmp_path: Path) -> None:
    other = pem_of(CA())
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate verify failed"):
        handshake(tmp_path, served=["localhost"], asked="localhost", trusted=other)
