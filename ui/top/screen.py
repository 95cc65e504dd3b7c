"""A cluster as lines of a terminal: sums, a map of its devices to scale, and the pods that wait. Pure.

A share is written in a letter of its namespace or queue as well as in a colour, so shares differ without colours,
too. What is free of a device is ``.`` where it takes further shares, ``-`` where all of it is free, and ``x`` where it
is closed to everybody, and ``~`` where somebody may be whose pods were not read.
"""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

import msgspec
from rich.text import Text

from gpu.share import NANO_PER_DEVICE
from runtime.text import line
from ui.inspect.tables import gpus_down, gpus_up, percent_down, percent_up
from ui.inspect.values import UnusableView
from ui.page.stream import UNKNOWN
from ui.page.values import Changes, Device, NodeCard, PodLine, Tenant
from ui.queues.pools import DEFAULT
from ui.top.panels import idle_lines, queue_lines, use_lines
from wire.crds.podgroup import DEFAULT_NODE_POOL

_PALETTE: Final = ("cyan", "yellow", "magenta", "green", "bright_blue", "bright_red", "white", "bright_yellow")
_LETTERS: Final = string.ascii_lowercase + string.ascii_uppercase
_NOBODY: Final = "?"
_GAP: Final = "  "
#: Cells of a device's bar: wide enough to tell shares apart, or narrow enough for a row of eight.
_WIDEST_BAR: Final = 12
_NARROWEST_BAR: Final = 4
_NAME_WIDTH: Final = 24
_STATE_WIDTH: Final = 14
_KEYS: Final = "q ends   arrows, space: scroll   d: devices   u: queues   b: namespace or queue"
#: Lines beside map and waiting pods: sums, legend, two empty ones and the title of the waiting, keys.
_FRAME: Final = 6


class View(msgspec.Struct, frozen=True):
    """What somebody looks at: a terminal's size in characters, the first line of the map, and how it is drawn."""

    width: int
    height: int
    top: int = 0
    by: str = "namespace"
    details: bool = False
    #: Whether nodes can be read.
    has_nodes: bool = True
    #: Whether queues are shown, and not the map.
    queues: bool = False
    #: Whether use of shares is shown, and not the map; whether it is followed at all.
    use: bool = False
    has_use: bool = False
    #: Of these only idle ones.
    idle: bool = False
    #: The time of the API server.
    now_ns: int = 0


class Screen(msgspec.Struct, frozen=True):
    """``lines``: as many as there is room for. ``top``: the first line of the map that is really shown."""

    lines: Sequence[Text]
    top: int
    #: Lines of the map that fit.
    page: int


class Letters:
    """The letter and colour of each name: the first name keeps its own."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def of(self, owner: str) -> tuple[str, str]:
        """A letter and a style. Where there are more owners than letters, several have one."""
        if not owner:
            return _NOBODY, "black on bright_black"
        number = self._known.setdefault(owner, len(self._known))
        return _LETTERS[number % len(_LETTERS)], f"black on {_PALETTE[number % len(_PALETTE)]}"


def screen(
    shown: Changes,
    letters: Letters,
    view: View,
    *,
    notes: Sequence[str] = (),
    unusable: Sequence[UnusableView] = (),
) -> Screen:
    """Draw all of a cluster that fits. ``notes``: what is missing in it. ``unusable``: free GPUs that fit no pod."""
    queue_of = {pod.uid: pod.queue for pod in shown.pods} if view.by == "queue" else {}
    owners = _Owners(letters, view.by, queue_of)
    nodes, heads = _by_pool(shown.nodes)
    # First, so that the owners with most GPUs get the first letters.
    legend = _legend(nodes, owners)
    listed = _listed(shown, view)
    count = sum(_height(node, view, heads) for node in nodes) if listed is None else len(listed)
    waiting = sorted((pod for pod in shown.pods if pod.waits and not pod.node), key=lambda pod: (pod.created, pod.uid))
    room = max(1, view.height - _FRAME - len(notes) - bool(unusable))
    for_waiting = min(len(waiting), room // 3)
    page = room - for_waiting
    top = max(0, min(view.top, count - page))
    lines = [
        _sums(shown.nodes) if view.has_nodes else Text("nodes can't be read, so there is no map", style="bold"),
        *([_unusable(unusable)] if unusable else []),
        legend,
        Text(),
        *(_map(nodes, owners, view, heads, top=top, page=page) if listed is None else listed[top : top + page]),
        Text(),
        *_waiting(waiting, for_waiting, view.width),
        *(Text(line(note), style="yellow") for note in notes),
        _foot(top, page, count, view),
    ]
    for each in lines:
        each.truncate(view.width, overflow="ellipsis")
    return Screen(lines, top, page)


def _listed(shown: Changes, view: View) -> list[Text] | None:
    """What is shown in place of the map; None: the map."""
    if view.queues:
        return list(queue_lines(shown.queues, view.width))
    if not view.use:
        return None
    queue_of = {pod.uid: pod.queue for pod in shown.pods}
    if view.idle:
        return list(idle_lines(shown.nodes, queue_of, now_ns=view.now_ns, width=view.width))
    return list(use_lines(shown.nodes, queue_of, by=view.by, now_ns=view.now_ns, width=view.width))


# --- sums --------------------------------------------------------------------------------------------------------


def _sums(nodes: Sequence[NodeCard]) -> Text:
    said = Text(f"{sum(node.gpus for node in nodes)} GPUs on {len(nodes)} nodes", style="bold")
    if any(node.is_partly_known for node in nodes):
        used, unknown = sum(node.used_nano for node in nodes), sum(node.unknown_nano for node in nodes)
        said.append(f"{_GAP}used at least {gpus_up(used)}")
        return said.append(f"{_GAP}not known {gpus_up(unknown)}", style="yellow")
    for name, nano in (
        ("used", sum(node.used_nano for node in nodes)),
        ("left of shared", sum(node.pieces_nano for node in nodes)),
        ("idle", sum(node.idle_nano for node in nodes)),
        ("stranded", sum(node.stranded_nano for node in nodes)),
    ):
        amount = gpus_up(nano) if name == "used" else gpus_down(nano)
        said.append(f"{_GAP}{name} {amount}", style="yellow" if name == "stranded" and nano else "")
    return said


def _unusable(unusable: Sequence[UnusableView]) -> Text:
    """How many free GPUs fit no pod that waits or is usual, and why."""
    said = Text(f"free and fits no pod {gpus_down(sum(each.nano for each in unusable))}:", style="yellow")
    for each in sorted(unusable, key=lambda each: -each.nano):
        said.append(f"{_GAP}{each.cause.value} {gpus_down(each.nano)}")
    return said


class _Owners:
    """Whose a share is, as people want to tell them apart."""

    def __init__(self, letters: Letters, by: str, queues: Mapping[str, str]) -> None:
        self._letters = letters
        self._by = by
        self._queues = queues

    def name(self, tenant: Tenant) -> str:
        """The namespace or the queue of its pod, "" for one that is not known."""
        return tenant.namespace if self._by == "namespace" else self._queues.get(tenant.uid, "")

    @property
    def nobody(self) -> str:
        """What shares without an owner are called."""
        return "no queue" if self._by == "queue" else "not known"

    def mark(self, owner: str) -> tuple[str, str]:
        """Its letter and style."""
        return self._letters.of(owner)


def _legend(nodes: Sequence[NodeCard], owners: _Owners) -> Text:
    """The largest is first: what does not fit at the end is missed least."""
    used: dict[str, int] = {}
    for node in nodes:
        for device in node.devices:
            for tenant in device.tenants:
                owner = owners.name(tenant)
                # MIG slices are not among the GPUs that are counted.
                used[owner] = used.get(owner, 0) + (0 if device.resource else tenant.nano)
    said = Text()
    for owner in sorted(used, key=lambda owner: (-used[owner], owner)):
        letter, style = owners.mark(owner)
        said.append(f"{letter}", style=style)
        said.append(f" {line(owner) or owners.nobody} {gpus_up(used[owner])}{_GAP}")
    return said


# --- map ---------------------------------------------------------------------------------------------------------


def _by_pool(nodes: Sequence[NodeCard]) -> tuple[Sequence[NodeCard], Mapping[str, str]]:
    """The nodes pool by pool, and the line above the first node of each pool; none where there is one pool."""
    if all(node.node_pool == DEFAULT for node in nodes):
        return nodes, {}
    pools: dict[str, list[NodeCard]] = {}
    for node in nodes:
        pools.setdefault(node.node_pool, []).append(node)
    made = sorted(pools.items())
    return [node for _, of_it in made for node in of_it], {of_it[0].name: _pool(name, of_it) for name, of_it in made}


def _pool(name: str, nodes: Sequence[NodeCard]) -> str:
    at_least = "at least " if any(node.is_partly_known for node in nodes) else ""
    used = f"{at_least}{gpus_up(sum(node.used_nano for node in nodes))} used"
    gpus = sum(node.gpus for node in nodes)
    return f"node pool {line(name) or DEFAULT_NODE_POOL}: {gpus} GPUs on {len(nodes)} nodes, {used}"


def _map(
    nodes: Sequence[NodeCard], owners: _Owners, view: View, heads: Mapping[str, str], *, top: int, page: int
) -> Iterator[Text]:
    """The lines that are seen: of thousands of devices only those are drawn."""
    at = 0
    for node in nodes:
        height = _height(node, view, heads)
        if at < top + page and at + height > top:
            yield from islice(_node(node, owners, view, heads), max(0, top - at), top + page - at)
        at += height


def _height(node: NodeCard, view: View, heads: Mapping[str, str]) -> int:
    """How many lines a node has."""
    above = len(_above(node, view)) + (node.name in heads)
    if view.details:
        return above + 1 + len(node.devices)
    return above + max(1, -(-len(node.devices) // _row(node, view)[1]))


def _above(node: NodeCard, view: View) -> list[str]:
    """A name that is too long for its column, on lines of its own: pools give their nodes names that end alike."""
    name, width = line(node.name), max(1, view.width)
    if len(name) < _NAME_WIDTH:
        return []
    return [name[at : at + width] for at in range(0, len(name), width)]


def _row(node: NodeCard, view: View) -> tuple[int, int]:
    """Cells of a device's bar, and devices of a line."""
    room = max(_NARROWEST_BAR, view.width - _NAME_WIDTH - _STATE_WIDTH)
    cells = max(_NARROWEST_BAR, min(_WIDEST_BAR, room // max(1, len(node.devices)) - 1))
    return cells, max(1, (room + 1) // (cells + 1))


def _node(node: NodeCard, owners: _Owners, view: View, heads: Mapping[str, str]) -> Iterator[Text]:
    """Lines of a node: its devices side by side, or one below the other with their tenants."""
    if node.name in heads:
        yield Text(heads[node.name], style="bold")
    above = _above(node, view)
    yield from (Text(part) for part in above)
    head = Text(("" if above else line(node.name)).ljust(_NAME_WIDTH))
    state = _state(node)
    head.append(_cut(state, _STATE_WIDTH).ljust(_STATE_WIDTH), style="" if state == "ready" else "yellow")
    if view.details:
        at_least = "at least " if node.is_partly_known else ""
        yield head.append(f"{node.gpus} GPUs, {at_least}{gpus_up(node.used_nano)} used")
        for device in node.devices:
            yield _described(device, owners)
        return
    cells, a_row = _row(node, view)
    rows = [node.devices[first : first + a_row] for first in range(0, max(1, len(node.devices)), a_row)]
    for number, row in enumerate(rows):
        yield Text(" ").join([(head if number == 0 else Text(" " * len(head))), *(_bar(d, cells, owners) for d in row)])


def _state(node: NodeCard) -> str:
    said = [
        "not ready" if node.is_not_ready else "",
        "cordoned" if node.is_cordoned else "",
        "MIG" if node.is_mig else "",
        f"{node.unhealthy_gpus} unhealthy" if node.unhealthy_gpus else "",
        f"{node.lost_gpus} lost" if node.lost_gpus else "",
    ]
    return ", ".join(one for one in said if one) or "ready"


def _bar(device: Device, cells: int, owners: _Owners) -> Text:
    """One device, to scale: each tenant has a cell at least, as long as there are cells."""
    bar = Text()
    tenants = sorted(device.tenants, key=owners.name)
    used, filled = 0, 0
    for number, tenant in enumerate(tenants):
        used += tenant.nano
        left_to_others = len(tenants) - number - 1
        until = max(filled + 1, -(-used * cells // NANO_PER_DEVICE))
        until = max(filled, min(until, cells - left_to_others))
        letter, style = owners.mark(owners.name(tenant))
        bar.append(letter * (until - filled), style=style)
        filled = until
    return bar.append(_free(device) * max(0, cells - filled), style="red" if device.closed else "dim")


def _free(device: Device) -> str:
    if device.closed:
        return "x"
    if device.kind == UNKNOWN or device.is_partly_known:
        return "~"
    return "." if device.kind == "shared" else "-" if device.kind == "free" else "#"


def _described(device: Device, owners: _Owners) -> Text:
    """One device with its tenants by name."""
    place = f"GPU {device.number}" if device.number >= 0 else line(device.resource) or "GPU"
    said = Text(_GAP + place.ljust(7)).append(_bar(device, _WIDEST_BAR, owners))
    said.append(f"{_GAP}{percent_up(device.used_nano):>7} used{_GAP}")
    if device.closed:
        said.append("closed: " + ", ".join(device.closed) + _GAP, style="red")
    elif device.kind == UNKNOWN or device.is_partly_known:
        said.append(f"the rest is not known{_GAP}" if device.tenants else f"not known{_GAP}", style="dim")
    elif device.kind != "whole":
        said.append(f"{percent_down(device.free_nano)} free{_GAP}", style="dim")
    for tenant in device.tenants:
        letter, style = owners.mark(owners.name(tenant))
        said.append(letter, style=style)
        name = f"{tenant.namespace}/{tenant.name}" if tenant.name else "somebody's"
        state = " (on its way)" if tenant.is_on_its_way else " (kept: its pod is gone)" if tenant.is_kept else ""
        said.append(f" {line(name)} {percent_up(tenant.nano)}{state}{_GAP}")
    return said


# --- waiting -----------------------------------------------------------------------------------------------------


def _waiting(pods: Sequence[PodLine], shown: int, width: int) -> Iterator[Text]:
    if not pods:
        yield Text("no pod waits", style="dim")
        return
    more = f", the first {shown}" if 0 < shown < len(pods) else ""
    yield Text(f"{len(pods)} waiting{more}", style="bold")
    for pod in pods[:shown]:
        said = Text(_cut(line(f"{pod.namespace}/{pod.name}"), width // 3), style="yellow")
        said.append(f"{_GAP}{line('; '.join(pod.asks))}{_GAP}", style="dim")
        yield said.append(_why(pod), style="default")


def _why(pod: PodLine) -> str:
    if pod.on_its_way_to:
        return f"on its way to {line(pod.on_its_way_to)}"
    said = ": ".join(text for text in (pod.reason, " ".join(pod.message.split())) if text)
    return line(said) or "nobody has looked at it yet"


def _foot(top: int, page: int, count: int, view: View) -> Text:
    where = f"lines {top + 1}-{min(top + page, count)} of {count}   " if count > page else ""
    keys = "   i: use   o: idle only" if view.use else "   i: use" if view.has_use else ""
    return Text(where + _KEYS + keys, style="dim")


def _cut(text: str, width: int) -> str:
    return text if len(text) < width else f"{text[: width - 2]}… "
