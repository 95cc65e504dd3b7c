"""Which objects a command shows: kinds, formats and units, and ``-n``, ``-A`` and ``-l`` as kubectl has them."""

from __future__ import annotations

import argparse
import re
from typing import Final

from runtime.text import BadInput

CLUSTER: Final = "cluster"
NODE: Final = "node"
POD: Final = "pod"
GROUP: Final = "podgroup"
QUEUE: Final = "queue"
#: As kubectl's users write them.
SPELLINGS: Final = {
    CLUSTER: CLUSTER,
    **dict.fromkeys((NODE, "nodes", "no"), NODE),
    **dict.fromkeys((POD, "pods", "po"), POD),
    **dict.fromkeys((GROUP, "podgroups", "pg", "group"), GROUP),
    **dict.fromkeys((QUEUE, "queues"), QUEUE),
}
ALIYUN: Final = "aliyun"
FORMATS: Final = ("moorage", ALIYUN)
UNITS_MIB: Final = {"GiB": 1024, "MiB": 1}
#: Kinds that have a namespace.
IN_NAMESPACES: Final = frozenset({POD, GROUP})
#: What messages call an object of a kind, where that is not the kind as it is typed.
_CALLED: Final = {GROUP: "PodGroup"}


def called(kind: str) -> str:
    """Return the name of a kind as messages write it."""
    return _CALLED.get(kind, kind)


#: By what ``moorage top`` tells shares apart: whose have one letter and colour.
COLOURS: Final = ("namespace", "queue")


#: Each takes four watches where a cluster is followed.
MOST: Final = 64
_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def add(parser: argparse.ArgumentParser, *, default: str, labels: str) -> None:
    """Add the group; ``namespaces`` and ``labels`` read it.

    ``default``: which namespaces are shown where none is named. ``labels``: what ``-l`` selects, "": nothing here.
    """
    group = parser.add_argument_group("selection")
    group.add_argument(
        "-n",
        "--namespace",
        action="append",
        default=[],
        metavar="NAMESPACE",
        help=f"namespace of pods; may be repeated (default: {default})",
    )
    group.add_argument("-A", "--all-namespaces", action="store_true", help="pods of all namespaces")
    help_labels = f"labels of {labels}, as in key=value,key2!=value2" if labels else argparse.SUPPRESS
    group.add_argument("-l", "--selector", default="", metavar="SELECTOR", help=help_labels)


def namespaces(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Those that are named, each once; none: the default, or all with ``-A``. Raises BadInput."""
    found = tuple(dict.fromkeys(arguments.namespace))
    if found and arguments.all_namespaces:
        raise BadInput("-n and -A: allowed is one of the two")
    for name in found:
        if not _NAMESPACE.fullmatch(name):
            raise BadInput(
                f"--namespace {name}: allowed is the name of a namespace: up to 63 lower-case letters, digits, dashes"
            )
    if len(found) > MOST:
        raise BadInput(f"--namespace: {len(found)} are given; allowed are {MOST}, or all")
    return found


def refuse_labels(arguments: argparse.Namespace, why: str) -> None:
    """Raise BadInput for labels where they select nothing."""
    if arguments.selector:
        raise BadInput(f"-l: {why}")
