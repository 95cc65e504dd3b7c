"""Edits as people write them: ``gpu-fraction=0.3``, ``limit team-a gpu=16``, ``node +2 like n17``.

A text is read in time linear in its length, and refused with what is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from gpu.share import NANO_PER_DEVICE
from scheduler.core.model.quota import DIMENSIONS, UNLIMITED
from scheduler.core.what_if.edits import Edit, NotPossible
from scheduler.core.what_if.group_changes import (
    CPU,
    FIELDS,
    FRACTION,
    GPU_MEMORY,
    GPUS,
    MEMORY,
    Asking,
    Members,
    Tolerating,
    Without,
)
from scheduler.core.what_if.node_changes import Ended, MoreNodes, NodeOut
from scheduler.core.what_if.queue_changes import LIMIT, QUOTA, WEIGHT, OtherQueue, QueueAmount
from wire.core import Taint
from wire.quantity import MalformedQuantity, mib_up, milli_up, parse_nano

#: A text that people write is not longer.
MOST_CHARACTERS: Final = 400
#: More of a count than there can be.
_MOST_COUNT: Final = 10_000_000
_FORMS: Final = (
    "gpu-fraction=0.3, gpu-memory=8000, gpus=2, cpu=4, memory=8Gi, members=6, queue=NAME, limit QUEUE gpu=16, "
    "quota QUEUE gpu=16, weight QUEUE gpu=2, without FIELD [KEY], tolerate KEY[=VALUE]:EFFECT, "
    "finish [NAMESPACE/]NAME, node +2 like NODE, drain NODE, cordon NODE"
)
_TAINT: Final = re.compile(r"(?P<key>[^=:\s]{1,317})(?:=(?P<value>[^=:\s]{0,63}))?:(?P<effect>NoSchedule|NoExecute)")
_NODES: Final = re.compile(r"\+(?P<count>[0-9]{1,4})")


def read_edit(text: str) -> Edit:
    """Read one edit. Raises NotPossible."""
    if len(text) > MOST_CHARACTERS:
        raise NotPossible(f"a what-if of {len(text)} characters: allowed are {MOST_CHARACTERS}")
    words = text.split()
    if len(words) == 1 and "=" in words[0]:
        return _assigned(*words[0].split("=", 1))
    known = _COMMANDS.get(words[0]) if words else None
    if known is None:
        raise NotPossible(f"{text!r} is no what-if; allowed: {_FORMS}")
    return known(words)


# --- name=value ------------------------------------------------------------------------------------------------------
def _assigned(name: str, value: str) -> Edit:
    if name in _AMOUNTS:
        return Asking(name, _amount(name, value))
    if name == "members":
        return Members(_count(name, value))
    if name == "queue" and value:
        return OtherQueue(value)
    raise NotPossible(f"{name}={value} is no what-if; allowed: {_FORMS}")


def _count(name: str, value: str) -> int:
    if not (value.isascii() and value.isdecimal() and len(value) <= len(str(_MOST_COUNT)) and int(value) > 0):
        raise NotPossible(f"{name}={value}: allowed is a whole number from 1")
    return int(value)


def _fraction(value: str) -> int:
    nano = parse_nano(value)
    if not 0 < nano <= NANO_PER_DEVICE:
        raise NotPossible(f"{FRACTION}={value}: allowed is a part of one GPU above 0 and up to 1, as in 0.5")
    return nano


def _amount(name: str, value: str) -> int:
    try:
        amount = _AMOUNTS[name](value)
    except MalformedQuantity as error:
        raise NotPossible(f"{name}={value}: {error}") from error
    if amount <= 0:
        raise NotPossible(f"{name}={value}: allowed is an amount above 0")
    return amount


_AMOUNTS: Final[Mapping[str, Callable[[str], int]]] = {
    FRACTION: _fraction,
    GPU_MEMORY: lambda value: _count(GPU_MEMORY, value),
    GPUS: lambda value: _count(GPUS, value),
    CPU: milli_up,
    MEMORY: mib_up,
}


# --- words -----------------------------------------------------------------------------------------------------------
def _of_queue(words: Sequence[str]) -> Edit:
    field = words[0]
    name, _, value = words[-1].partition("=")
    if len(words) != 3 or name not in DIMENSIONS or not value:
        raise NotPossible(f"{' '.join(words)}: allowed is {field} QUEUE RESOURCE=AMOUNT with cpu, memory or gpu")
    return QueueAmount(words[1], field, name, _queue_amount(field, name, value))


def _queue_amount(field: str, name: str, value: str) -> int:
    """As a Queue counts it: cores, bytes, GPUs; -1 without end. A weight in millionths."""
    if value == "-1" and field != WEIGHT:
        return UNLIMITED
    try:
        nano = parse_nano(value)
    except MalformedQuantity as error:
        raise NotPossible(f"{field} {name}={value}: {error}") from error
    if nano < 0:
        without = "" if field == WEIGHT else "-1 for no limit, or "
        raise NotPossible(f"{field} {name}={value}: allowed is {without}a number from 0")
    if field == WEIGHT:
        return min(nano // 10**3, UNLIMITED - 1)
    amount = {"cpu": nano // 10**6, "memory": nano // 10**9, "gpu": nano}[name]
    return min(amount, UNLIMITED)


def _without(words: Sequence[str]) -> Edit:
    if not 2 <= len(words) <= 3 or words[1] not in FIELDS or (len(words) == 3 and words[1] != FIELDS[0]):
        raise NotPossible(f"{' '.join(words)}: allowed is without {', '.join(FIELDS)}, or without {FIELDS[0]} KEY")
    return Without(words[1], words[2] if len(words) == 3 else "")


def _tolerate(words: Sequence[str]) -> Edit:
    found = _TAINT.fullmatch(words[1]) if len(words) == 2 else None
    if found is None:
        raise NotPossible(f"{' '.join(words)}: allowed is tolerate KEY[=VALUE]:EFFECT with NoSchedule or NoExecute")
    return Tolerating(Taint(key=found["key"], value=found["value"] or "", effect=found["effect"]))


def _finish(words: Sequence[str]) -> Edit:
    namespace, _, name = words[-1].rpartition("/")
    if len(words) != 2 or not name:
        raise NotPossible(f"{' '.join(words)}: allowed is finish [NAMESPACE/]NAME of a pod or PodGroup")
    return Ended(name, namespace)


def _node(words: Sequence[str]) -> Edit:
    found = _NODES.fullmatch(words[1]) if len(words) == 4 and words[2] == "like" else None
    if found is None:
        raise NotPossible(f"{' '.join(words)}: allowed is node +COUNT like NODE")
    return MoreNodes(int(found["count"]), words[3])


def _node_out(words: Sequence[str]) -> Edit:
    if len(words) != 2:
        raise NotPossible(f"{' '.join(words)}: allowed is {words[0]} NODE")
    return NodeOut(words[1], is_drained=words[0] == "drain")


_COMMANDS: Final[Mapping[str, Callable[[Sequence[str]], Edit]]] = {
    LIMIT: _of_queue,
    QUOTA: _of_queue,
    WEIGHT: _of_queue,
    "without": _without,
    "tolerate": _tolerate,
    "finish": _finish,
    "node": _node,
    "drain": _node_out,
    "cordon": _node_out,
}
