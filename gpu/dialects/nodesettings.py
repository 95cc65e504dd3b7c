"""The part of the settings file that is about some nodes: ``nodes``, labels and what is different where they are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from gpu.dialects.checking import mistakes as mistakes_of
from gpu.dialects.settings import DialectSettings, NodeSettings
from gpu.refusal import Mistake, Refusal, shown

#: Each is one more reading of every pod, and one more request in the record of a pod that it matters to.
MOST_NODES: Final = 16
MOST_LABELS: Final = 8

_KEY: Final = re.compile(
    r"(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII
)
_VALUE: Final = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", re.ASCII)
_SHAPE: Final = "a list of objects with labels and what is different there: replicas, metagpu, aliyun"

#: Puts what is said over a struct of settings: the new struct, or what is wrong (gpu/dialects/settingsfile.py).
Merge = Callable[..., Any]


def read(said: object, merge: Merge) -> tuple[NodeSettings, ...] | Refusal:
    """Read the list, or say the first thing that is wrong with its form."""
    if said is None:
        return ()
    if not isinstance(said, list) or len(said) > MOST_NODES:
        return _wrong("nodes", said, "can't be that", f"{_SHAPE}; at most {MOST_NODES}")
    found: list[NodeSettings] = []
    for number, entry in enumerate(said):
        one = _one(f"nodes[{number}]", entry, merge)
        if isinstance(one, Refusal):
            return one
        same = next((at for at, other in enumerate(found) if {*other.labels} <= {*one.labels}), None)
        if same is not None:
            return _wrong(
                f"nodes[{number}].labels",
                _told(one),
                f"never counts: nodes[{same}] comes first and has all such nodes",
                "more labels before fewer, each set once",
            )
        found.append(one)
    return tuple(found)


def _one(where: str, entry: object, merge: Merge) -> NodeSettings | Refusal:
    if not isinstance(entry, Mapping):
        return _wrong(where, entry, "can't be that", _SHAPE)
    labels = _labels(f"{where}.labels", entry.get("labels"))
    if isinstance(labels, Refusal):
        return labels
    said = {name: value for name, value in entry.items() if name != "labels"}
    made = merge(NodeSettings(), said, path=f"{where}.", kept=frozenset())
    return made if isinstance(made, Refusal) else msgspec.structs.replace(made, labels=labels)


def _labels(where: str, said: object) -> tuple[tuple[str, str], ...] | Refusal:
    allowed = (
        f"1 to {MOST_LABELS} labels of nodes with their values as text, such as nvidia.com/device-plugin.config: ts"
    )
    if not isinstance(said, Mapping) or not 0 < len(said) <= MOST_LABELS:
        return _wrong(where, said, "can't be that", allowed)
    for key, value in said.items():
        if not (isinstance(key, str) and _KEY.fullmatch(key)):
            return _wrong(where, key, "is no label", allowed)
        if not (isinstance(value, str) and _VALUE.fullmatch(value)):
            return _wrong(f"{where}.{key}", value, "is no value of a label", allowed)
    return tuple(sorted(said.items()))


def mistakes(settings: DialectSettings) -> tuple[Refusal, ...]:
    """All that can't be of the settings as they are on each kind of node; the cluster's own are known to be right."""
    return tuple(_mistakes(settings))


def _mistakes(settings: DialectSettings) -> Iterator[Refusal]:
    for number, node in enumerate(settings.nodes):
        for mistake in mistakes_of(node.over(settings)):
            yield msgspec.structs.replace(
                mistake, field=f"nodes[{number}].{mistake.field}", message=f"nodes[{number}]: {mistake.message}"
            )


def _told(node: NodeSettings) -> str:
    return ",".join(f"{key}={value}" for key, value in node.labels)


def _wrong(field: str, value: object, what: str, allowed: str) -> Refusal:
    text = shown(str(value)) if isinstance(value, str | int | float) else type(value).__name__
    return Refusal(code=Mistake.MALFORMED, field=field, value=text, message=f"{field} {what}", allowed=allowed)
