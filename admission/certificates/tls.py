"""What a server of ours shows over TLS: new handshakes take the pair that was loaded last."""

from __future__ import annotations

import logging
import os
import ssl
from pathlib import Path
from typing import Final, Protocol

import anyio
import msgspec
from typing_extensions import override

log = logging.getLogger(__name__)

_READY: Final = ""


class Shown(Protocol):
    """What the server shows. ``begin`` makes it usable, ``run`` keeps it up to date until cancelled."""

    @property
    def context(self) -> ssl.SSLContext:
        """The context for the next handshake."""
        ...

    async def begin(self) -> None:
        """Have something to show."""
        ...

    async def run(self) -> None:
        """Keep it fresh."""
        ...

    def unready(self) -> str:
        """Say why what is shown is of no use; "" if it is."""
        ...


class Files(msgspec.Struct, frozen=True, kw_only=True):
    """PEM files that somebody else renews."""

    certificate: Path
    key: Path
    #: How often they are looked at.
    reload_s: float = 10.0


def server_context() -> ssl.SSLContext:
    """Return a context without a certificate yet.

    No session tickets: the API server resumes no sessions of webhooks (client-go keeps none), and the two that OpenSSL
    makes by default are a fifth of what a new connection costs.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.num_tickets = 0
    return context


class FilesShown(Shown):
    """Shows the pair in two files. ``trouble``: why what they hold by now is not shown; "": it is."""

    def __init__(self, files: Files) -> None:
        self._context = server_context()
        self._files = files
        self._loaded: tuple[bytes, bytes] | None = None
        self.trouble = ""

    @property
    @override
    def context(self) -> ssl.SSLContext:
        return self._context

    @override
    async def begin(self) -> None:
        """Load the files if they changed. A broken pair raises OSError (ssl.SSLError is one); the old one stays in use.

        Each pair gets a context of its own: of a pair that does not fit, OpenSSL keeps the certificate and drops the
        key of the one before, and a key of another kind would stand beside the old one.
        """
        found = (await anyio.Path(self._files.certificate).read_bytes(), await anyio.Path(self._files.key).read_bytes())
        if found != self._loaded:
            made = server_context()
            load(made, *found)
            self._context, self._loaded = made, found

    @override
    async def run(self) -> None:
        """Look at the files now and then, for ever."""
        while True:
            await anyio.sleep(self._files.reload_s)
            before, trouble = self._loaded, ""
            try:
                await self.begin()
            except OSError as error:
                trouble = f"the new certificate is not usable, the old one is kept: {error}"
            if trouble and trouble != self.trouble:
                log.error(trouble)
            elif self._loaded != before:
                log.info("a new certificate is shown")
            self.trouble = trouble

    @override
    def unready(self) -> str:
        return _READY


def load(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load PEM texts into a context. OpenSSL reads files only, so they lie in memory for that moment, on no disk.

    Raises ssl.SSLError; for a key that is encrypted, too, since nobody is there to be asked.
    """
    descriptor = os.memfd_create("certificate")
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(certificate + b"\n" + key)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password="")
    finally:
        os.close(descriptor)
