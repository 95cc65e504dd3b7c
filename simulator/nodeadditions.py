"""What all simulated nodes have beside their GPUs: labels, and amounts of other resources."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from simulator.shape import NodeShape
from wire import names, quantity

#: Most labels, and most resources.
MOST: Final = 64
_NAME: Final = r"(?:[a-z0-9][a-z0-9.-]{0,252}/)?[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_VALUE: Final = r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?"
_LABEL: Final = re.compile(rf"(?P<name>{_NAME})=(?P<value>{_VALUE})")
_RESOURCE: Final = re.compile(rf"(?P<name>{_NAME})=(?P<amount>.{{1,40}})")
_LARGEST: Final = 2**40


class MalformedAddition(ValueError):
    """Raised when a text is no label or amount; names the option, the text and what is allowed."""


def added(shapes: Sequence[NodeShape], *, labels: Sequence[str], resources: Sequence[str]) -> tuple[NodeShape, ...]:
    """Return the nodes with labels (``KEY=VALUE``) and amounts (``NAME=QUANTITY``). Raises MalformedAddition.

    ``cpu``, ``memory``, ``ephemeral-storage`` and ``pods`` take the place of what nodes have by default.
    """
    for option, texts in (("--node-label", labels), ("--node-resource", resources)):
        if len(texts) > MOST:
            raise MalformedAddition(f"{option}: given {len(texts)} times; {MOST} times at most")
    more: dict[str, Any] = {}
    others: dict[str, int] = {}
    for text in resources:
        name, value = _amount(text)
        if name in _FIELDS:
            more[_FIELDS[name][0]] = value
        else:
            others[name] = value
    of_labels = dict(map(_label, labels))
    return tuple(
        msgspec.structs.replace(each, labels={**each.labels, **of_labels}, others=others, **more) for each in shapes
    )


def _label(text: str) -> tuple[str, str]:
    found = _LABEL.fullmatch(text)
    if found is None:
        raise MalformedAddition(f"--node-label {text!r}: not a label; allowed: KEY=VALUE, as in example.com/rack=r1")
    return found["name"], found["value"]


def _amount(text: str) -> tuple[str, int]:
    found = _RESOURCE.fullmatch(text)
    if found is None:
        allowed = "NAME=QUANTITY, as in example.com/npu=8"
        raise MalformedAddition(f"--node-resource {text!r}: not a resource with its amount; allowed: {allowed}")
    name = found["name"]
    if name == names.GPU_RESOURCE or name.startswith(names.MIG_RESOURCE_PREFIX):
        raise MalformedAddition(f"--node-resource {text!r}: GPUs are given by --nodes")
    _, read = _FIELDS.get(name, ("", quantity.whole))
    try:
        value = read(found["amount"])
    except quantity.MalformedQuantity as error:
        raise MalformedAddition(f"--node-resource {text!r}: {error}") from error
    if not 0 <= value <= _LARGEST:
        raise MalformedAddition(f"--node-resource {text!r}: not between 0 and {_LARGEST}")
    return name, value


#: Resources that every node has -> field of its shape, and how an amount of it is read.
_FIELDS: Final = {
    names.CPU_RESOURCE: ("cpu_milli", quantity.milli_down),
    names.MEMORY_RESOURCE: ("mem_mib", quantity.mib_down),
    names.EPHEMERAL_STORAGE_RESOURCE: ("ephemeral_mib", quantity.mib_down),
    names.PODS_RESOURCE: ("pods", quantity.whole),
}
