"""The pair in two files, as somebody else renews it: what the next handshake is shown."""

from __future__ import annotations

import ssl
from pathlib import Path

import anyio
import pytest
from cryptography.hazmat.primitives import serialization

from admission.certificates.pair import ServingCertificate, serving_certificate
from admission.certificates.tls import Files, FilesShown
from kube.client.clock import SystemClock


def made() -> ServingCertificate:
    return serving_certificate(addresses=["127.0.0.1"], now_ns=SystemClock().now_ns())


def encrypted(key: bytes) -> bytes:
    private = serialization.load_pem_private_key(key, password=None)
    encryption = serialization.BestAvailableEncryption(b"secret")
    return private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


class Folder:
    """Two files, as kubelet keeps those of a Secret: a link to a folder, which is swapped."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.shown = FilesShown(Files(certificate=path / "tls.crt", key=path / "tls.key", reload_s=0.01))
        for name in ("tls.crt", "tls.key"):
            (path / name).symlink_to(Path("..data") / name)

    def swap(self, certificate: bytes, key: bytes) -> None:
        version = self._path / f"..{len(list(self._path.iterdir()))}"
        version.mkdir()
        (version / "tls.crt").write_bytes(certificate)
        (version / "tls.key").write_bytes(key)
        (self._path / "..data_tmp").symlink_to(version.name)
        (self._path / "..data_tmp").rename(self._path / "..data")


def serial(context: ssl.SSLContext, ca: bytes) -> str:
    """Which certificate somebody is shown who trusts this CA. Raises ssl.SSLError where he is shown none."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    trust = ssl.create_default_context(cadata=ca.decode())
    client = trust.wrap_bio(down, up, server_hostname="127.0.0.1")
    server = context.wrap_bio(up, down, server_side=True)
    for _ in range(3):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    shown = client.getpeercert()
    assert shown is not None
    return str(shown["serialNumber"])


async def test_files_that_are_swapped_are_shown_from_the_next_handshake_on(tmp_path: Path) -> None:
    folder, old, new = Folder(tmp_path), made(), made()
    folder.swap(old.certificate, old.key)
    await folder.shown.begin()
    before = serial(folder.shown.context, old.ca)
    folder.swap(new.certificate, new.key)
    await folder.shown.begin()
    assert serial(folder.shown.context, new.ca) != before
    with pytest.raises(ssl.SSLCertVerificationError):
        serial(folder.shown.context, old.ca)


@pytest.mark.parametrize("broken", ["certificate", "key", "both", "encrypted", "torn"])
async def test_of_a_broken_pair_nothing_is_shown_and_it_is_said_once(
    broken: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """``torn``: the new certificate with the old key. Loaded where the old pair is, it would take its key away."""
    folder, old, new = Folder(tmp_path), made(), made()
    pairs = {
        "certificate": (b"no certificate", new.key),
        "key": (new.certificate, b"no key"),
        "both": (b"", b""),
        "encrypted": (new.certificate, encrypted(new.key)),
        "torn": (new.certificate, old.key),
    }
    folder.swap(old.certificate, old.key)
    await folder.shown.begin()
    before = serial(folder.shown.context, old.ca)
    folder.swap(*pairs[broken])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(folder.shown.run)
        with anyio.fail_after(60):
            while not folder.shown.trouble:  # noqa: ASYNC110 - files tell nobody
                await anyio.sleep(0.01)
            assert "the new certificate is not usable, the old one is kept" in folder.shown.trouble
            assert serial(folder.shown.context, old.ca) == before
            await anyio.sleep(0.1)
            assert [record.levelname for record in caplog.records] == ["ERROR"]
            folder.swap(new.certificate, new.key)
            while folder.shown.trouble:  # noqa: ASYNC110 - as above
                await anyio.sleep(0.01)
            assert serial(folder.shown.context, new.ca) != before
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("missing", ["tls.crt", "tls.key"])
async def test_without_a_first_pair_there_is_nothing_to_begin_with(missing: str, tmp_path: Path) -> None:
    folder, pair = Folder(tmp_path), made()
    folder.swap(pair.certificate, pair.key)
    (tmp_path / missing).unlink()
    with pytest.raises(FileNotFoundError):
        await folder.shown.begin()
