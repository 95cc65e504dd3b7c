"""L3 of what pods say of their queues: the arithmetic in it, and which link of the tree is broken.

The sentences are the product's (scheduler/conditions/messages.py), read as a user reads them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from math import floor
from typing import Final

from simulator.checks.queuetree import QueueTree

#: What a queue and those below it use at the least and at the most, as pods that vanished may count: queue, resource,
#: and whether only what can't be preempted counts.
Used = Callable[[str, str, bool], tuple[Fraction, Fraction]]

_NUMBER: Final = r"[0-9]+(?:\.[0-9]+)?"
_LIMIT: Final = re.compile(
    rf"(?P<at>\S+) quota has reached the allowable limit of .*\. Limit is (?P<most>{_NUMBER}) (?P<unit>GPUs|cores|GB), "
    rf"currently (?P<held>{_NUMBER}) \S+ allocated and workload requested (?P<asked>{_NUMBER}) \S+"
)
_QUOTA: Final = re.compile(
    rf"Non-preemptible workload is over quota\. Workload requested (?P<asked>{_NUMBER}) (?P<unit>GPUs|cores|GB), "
    rf"but (?P<at>\S+) quota is (?P<most>{_NUMBER}) \S+, while (?P<held>{_NUMBER}) \S+ are already allocated .*"
)
_BROKEN: Final = re.compile(r"Queue (?P<name>\S+) (?:does not exist|has queues below it .*|can't be used: .*)")
#: Unit -> resource, how many of what is counted make one, and how many smallest units are one of what is counted.
_UNITS: Final = {"GPUs": ("gpu", 1, 10**9), "cores": ("cpu", 1000, 1), "GB": ("memory", 10**9, 1)}


def untrue(text: str, queue: str, tree: QueueTree, used: Used) -> Iterator[str]:
    """Yield what a pod of a queue says of it that is not so; nothing where it speaks of something else."""
    if found := _BROKEN.fullmatch(text):
        if found["name"] != queue or not tree.closed(queue):
            yield f"it says {text!r}, and of queue {queue} it is {tree.closed(queue) or 'nothing that keeps it'}"
    elif found := _LIMIT.fullmatch(text):
        yield from _wrong_amounts(found, "limit", tree.path(queue)[0], tree=tree, used=used)
    elif found := _QUOTA.fullmatch(text):
        yield from _wrong_amounts(found, "quota", tree.path(queue)[0], tree=tree, used=used)


def _wrong_amounts(
    found: re.Match[str], field: str, path: Sequence[str], *, tree: QueueTree, used: Used
) -> Iterator[str]:
    at, (resource, one, smallest) = found["at"], _UNITS[found["unit"]]
    if at not in path:
        yield f"it says {found[0]!r}, and the queues above it are {', '.join(path) or 'not to be used'}"
        return
    most, asked = Fraction(found["most"]) * one, Fraction(found["asked"]) * one
    really, (fewest, counted) = tree.most(at, field, resource), used(at, resource, field == "quota")
    held = Fraction(found["held"]) * one
    if really is None or most != floor(really * smallest) / Fraction(smallest):
        yield f"it says a {field} of {found['most']} for queue {at}, which has {really and float(really)}"
    if not fewest <= held <= counted or held + asked <= most:
        yield f"it says {found[0]!r}, and queue {at} uses {float(counted):g} {resource}"
