"""Settings of ``moorage ui``."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Final

import msgspec

from runtime.settings import kinds
from runtime.settings.common import Address
from runtime.settings.declaration import Setting

#: Of a simulated cluster where none are named.
NODES: Final = ("3x8x80GiB", "1x4x24GiB")


class PageSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the page is served, and to whom."""

    listen: Annotated[
        Address,
        Setting(
            help="serve the page there; beyond loopback readers have to show a token of the cluster", kind=kinds.ADDRESS
        ),
    ] = ("127.0.0.1", 8484)
    tls_cert_file: Annotated[
        str, Setting(help="certificate (PEM) of the page, needed beyond loopback", kind=kinds.PEM_NAME)
    ] = ""
    tls_key_file: Annotated[str, Setting(help="its key", kind=kinds.PEM_NAME)] = ""
    tls_elsewhere: Annotated[
        bool,
        Setting(
            help="take tokens without TLS: something before the page ends it (an ingress, a service mesh)",
            kind=kinds.SWITCH,
        ),
    ] = False
    trace_url: Annotated[
        str,
        Setting(
            help="where a pod's trace is looked at, with {trace_id} for its id: the page links there",
            kind=kinds.TRACE_ADDRESS,
        ),
    ] = ""


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address; a name other than localhost may be anything."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
