"""What simulated nodes are made of, how fast they are, and the short form in which people write them: ``4x8x80GiB``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from kube.client.retry import BackoffRange
from wire import names, quantity


class KubeletSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Times in seconds of the event loop. The defaults are near what kubelet does with a pulled image."""

    #: From admission to the first container's start: sandbox, network, volumes.
    sandbox_s: float = 0.5
    #: To start one container.
    start_s: float = 0.1
    #: How long an init container runs.
    init_run_s: float = 0.2
    #: How long a container takes to end after it was told to; at most its grace period.
    stop_s: float = 0.2
    #: Until a container that lacks a ConfigMap or Secret is tried again.
    config_retry_s: float = 1.0
    #: Between two tries of a write that didn't reach the API server.
    write_retry_s: float = 1.0
    crash_backoff: BackoffRange = BackoffRange(first_s=10.0, most_s=300.0)
    #: 0: no leases and no heartbeats (nobody looks at them on the in-memory API server).
    lease_period_s: float = 0.0
    #: What images set NVIDIA_VISIBLE_DEVICES to; CUDA's base images have "all", the most dangerous value. "": unset.
    image_visible_devices: str = "all"
    #: Whether devices are handed out in a random order (seeded) or by index.
    shuffle_devices: bool = True
    #: Concurrent writes of all nodes together.
    writers: int = 16


class ReservationFault(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with reservation processes on a node.

    ``delay_s`` passes before NVML answers; ``silent``: NVML never answers; ``lie``: the UUID that it tells
    instead of the true one; ``broken``: NVML fails with this message and the process ends with code 1. ``no_image``:
    their image can't be pulled, so none is started; those that run are left alone.
    """

    delay_s: float = 0.0
    silent: bool = False
    lie: str = ""
    broken: str = ""
    no_image: bool = False


NO_FAULT = ReservationFault()


ALLOWED: Final = (
    "NODESxGPUSxMEMORY as in 4x8x80GiB, with GPUs that differ 1x2x24GiB+2x80GiB, with MIG slices 1x7x1g.10gb, "
    "without GPUs 2x0"
)
MOST_NODES: Final = 100_000
MOST_CARDS: Final = 64
MOST_CARD_MIB: Final = 2**24
_MIB_PER_GB: Final = 1024

_NODES: Final = re.compile(r"(?P<nodes>[0-9]{1,18})x(?P<cards>.+)")
_PROFILE: Final = re.compile(r"[1-7]g\.(?P<gb>[1-9][0-9]{0,2})gb")
_SLICES: Final = re.compile(rf"(?P<count>[1-9][0-9]?)x(?P<profile>{_PROFILE.pattern})")
_CARDS: Final = re.compile(r"(?P<count>[0-9]{1,3})x(?P<memory>[0-9]+(?:Mi|Gi|Ti|M|G|T)B?)")


class NodeShape(msgspec.Struct, frozen=True, kw_only=True):
    """One node. ``cards_mib`` is the memory of each card by index; the rest is what kubelet reports as allocatable.

    ``slices``: MIG profiles (``1g.10gb``) of further cards that are cut, one a slice. ``is_single``: all of them are of
    one profile, and NVIDIA's plugin calls them ``nvidia.com/gpu`` (its strategy ``single``); such a node has no cards.
    """

    name: str
    cards_mib: tuple[int, ...] = ()
    slices: tuple[str, ...] = ()
    is_single: bool = False
    cpu_milli: int = 96_000
    mem_mib: int = 1_048_576
    ephemeral_mib: int = 1_048_576
    pods: int = 110
    labels: dict[str, str] = {}
    #: Amounts of further resources, in whole numbers.
    others: dict[str, int] = {}
    #: Whether only pods that tolerate simulated nodes come here.
    tainted: bool = False

    def resource_of(self, profile: str) -> str:
        """By which name slices of a profile are handed out."""
        return names.GPU_RESOURCE if self.is_single else names.MIG_RESOURCE_PREFIX + profile

    def devices(self) -> dict[str, int]:
        """How many devices there are, by the name under which they are handed out."""
        counted = {names.GPU_RESOURCE: len(self.cards_mib)} if self.cards_mib else {}
        for profile in self.slices:
            counted[self.resource_of(profile)] = counted.get(self.resource_of(profile), 0) + 1
        return counted


def slice_mib(profile: str) -> int:
    """Memory of a slice: what its name says in GiB. Real ones have somewhat less, as cards have."""
    found = _PROFILE.fullmatch(profile)
    if found is None:
        raise ValueError(f"{profile!r} is no MIG profile such as 1g.10gb")
    return int(found["gb"]) * _MIB_PER_GB


class MalformedShape(ValueError):
    """Raised when a text is not a shape of nodes; the message names the text and what is allowed."""

    def __init__(self, text: str, why: str) -> None:
        super().__init__(f"nodes {text!r}: {why}; allowed: {ALLOWED}")


def parse(texts: Sequence[str]) -> tuple[NodeShape, ...]:
    """Read groups of nodes, named ``node-0``, ``node-1``... over all of them. Raises MalformedShape.

    Grammar: ``NODES x CARDS x MEMORY``, as in four nodes of eight cards of 80 GiB each. Cards of one node may differ:
    ``1x2x24GiB+2x80GiB``. A MIG profile in the place of memory makes slices: ``1x2x80GiB+7x1g.10gb`` is a node with two
    cards and seven slices of another one. ``NODES x 0`` is a node without GPUs.
    """
    shapes: list[NodeShape] = []
    for text in texts:
        count, cards_mib, slices = _parse_group(text)
        if len(shapes) + count > MOST_NODES:
            raise MalformedShape(text, f"more than {MOST_NODES} nodes in all")
        shapes += [NodeShape(name=f"node-{len(shapes) + i}", cards_mib=cards_mib, slices=slices) for i in range(count)]
    return tuple(shapes)


def _parse_group(text: str) -> tuple[int, tuple[int, ...], tuple[str, ...]]:
    match = _NODES.fullmatch(text)
    if match is None:
        raise MalformedShape(text, "not a number of nodes, an x and GPUs")
    count = int(match["nodes"])
    if count == 0:
        raise MalformedShape(text, "no nodes")
    if match["cards"] == "0":
        return count, (), ()
    cards_mib: list[int] = []
    slices: list[str] = []
    for part in match["cards"].split("+"):
        cut = _SLICES.fullmatch(part)
        if cut is None:
            cards_mib += _parse_cards(text, part)
        else:
            slices += [cut["profile"]] * int(cut["count"])
    if len(cards_mib) + len(slices) > MOST_CARDS:
        raise MalformedShape(text, f"more than {MOST_CARDS} GPUs in a node")
    return count, tuple(cards_mib), tuple(slices)


def _parse_cards(text: str, part: str) -> tuple[int, ...]:
    match = _CARDS.fullmatch(part)
    if match is None:
        raise MalformedShape(text, f"{part!r} is not a number of GPUs, an x and a memory as in 80GiB or 24G")
    try:
        mem_mib = quantity.mib_down(match["memory"].removesuffix("B"))
    except quantity.MalformedQuantity as error:
        raise MalformedShape(text, str(error)) from error
    if not 0 < mem_mib <= MOST_CARD_MIB:
        raise MalformedShape(text, f"a GPU of {match['memory']} is not between 1 MiB and {MOST_CARD_MIB} MiB")
    return (mem_mib,) * int(match["count"])


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
