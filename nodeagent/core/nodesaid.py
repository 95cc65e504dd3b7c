"""What a Node says to its device plug-in: which file it is set by, and which GPUs an administrator calls mended."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from nodeagent.core.configchoice import LABELS
from wire import names

_BETWEEN = re.compile(r"[\s,]+")


class NodeSaid(msgspec.Struct, frozen=True):
    """``labels``: those that choose the file. ``cleared``: the annotation's value, "" for none."""

    labels: Mapping[str, str] = {}
    cleared: str = ""


def said(labels: Mapping[str, str], annotations: Mapping[str, str]) -> NodeSaid:
    """Return what a Node of these labels and annotations says."""
    chosen = {label: labels[label] for label in LABELS if label in labels}
    return NodeSaid(chosen, annotations.get(names.NODE_GPU_CLEARED, ""))


def cleared(before: NodeSaid | None, now: NodeSaid) -> frozenset[str]:
    """Return the UUIDs that the Node calls mended, where it did not say the same before.

    Without a before nothing is: the annotation may be older than the illness.
    """
    if before is None or before.cleared == now.cleared:
        return frozenset()
    return frozenset(filter(None, _BETWEEN.split(now.cleared)))


def encoded(what: NodeSaid) -> bytes:
    """As JSON."""
    return msgspec.json.encode(what)


def decoded(content: bytes) -> NodeSaid | None:
    """Read it; None for what can't be read."""
    try:
        return msgspec.json.decode(content, type=NodeSaid)
    except (msgspec.DecodeError, RecursionError):
        return None
