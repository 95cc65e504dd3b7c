"""Calls on the API server: get, list, create, patch, delete, bind, evict. Decoding, time-outs and errors in one place.

Every write carries ``?timeout=`` so that the server gives it up when we do. Nothing here retries a write whose outcome
is unknown: that is for the caller to settle (docs/design/protocol.md). Retries of what is safe are kube/retry.py's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

import msgspec

from kube.resources import Resource
from wire.core import Binding

T = TypeVar("T", bound=msgspec.Struct)


class Listing(msgspec.Struct, frozen=True):
    """A complete list and the resourceVersion from which a watch may go on."""

    items: list[Any]
    resource_version: str
