"""Where a process listens, as its command line says."""

from __future__ import annotations

import socket

from cli.refusing import BadInput


def listening(option: str, address: tuple[str, int] | None) -> socket.socket | None:
    """Listen there; None for nowhere. Raises BadInput, with the option's name, if that can't be had."""
    if address is None:
        return None
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    try:
        return socket.create_server(address, family=family)
    except OSError as error:
        raise BadInput(f"{option}: {address[0]}:{address[1]}: {error.strerror or error}") from error
