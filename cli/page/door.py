"""How readers connect: limited in number and rate, and over TLS with the certificate that is in its files now.

Anybody beyond loopback who reaches the page's address gets as far as this, without a token. So nobody stays who says
nothing: a handshake has 10 s, and a request 15 s. Of too many, those make room first that have asked nothing.
"""

from __future__ import annotations

import socket
from typing import Final

import anyio
from anyio.abc import TaskStatus

from admission.accepting import Entrance, Limits
from admission.certificates.tls import FilesShown
from cli.page.answering import Answering
from kube.serving import KEEP_ALIVE_S, running

#: Four times as many as pages may be open (cli/page/answering.py): a browser has some more for all else that it asks.
CONNECTIONS: Final = 512
LIMITS: Final = Limits(connections=CONNECTIONS)


class Door:
    """A listening socket, and what is ``shown`` there over TLS; None: nothing, connections are taken as they are."""

    def __init__(
        self,
        listener: socket.socket,
        shown: FilesShown | None = None,
        *,
        limits: Limits = LIMITS,
        ask_within_s: float = KEEP_ALIVE_S,
    ) -> None:
        self._listener = listener
        self._shown = shown
        self._limits = limits
        self._ask_within_s = ask_within_s

    @property
    def address(self) -> str:
        """Where it is, as browsers have it."""
        host, port = self._listener.getsockname()[:2]
        return f"{'https' if self._shown else 'http'}://{f'[{host}]' if ':' in host else host}:{port}/"

    def warnings(self) -> tuple[str, ...]:
        """What will have to be seen to."""
        return (self._shown.trouble,) if self._shown and self._shown.trouble else ()

    async def let_in(self, answering: Answering, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Let readers in until cancelled. Started at once."""
        shown = self._shown
        serving = running(answering.app(), keep_alive_s=self._ask_within_s)
        async with serving as server, anyio.create_task_group() as tasks:
            entrance = Entrance(
                self._listener,
                lambda: shown.context if shown else None,
                server,
                limits=self._limits,
                is_asking=answering.is_answering,
            )
            if shown:
                tasks.start_soon(shown.run)
            tasks.start_soon(entrance.run)
            task_status.started()
