"""The labels that GPU feature discovery (GFD) gives a node, for nodes where it does not run.

Source: NVIDIA device plugin v0.20, docs/gpu-feature-discovery and internal/lm. Left out: machine, mode, clique, vgpu,
mps, and the attributes of MIG profiles. Where a node has GPUs of several models NVIDIA's writes those of the last one,
and so does this. Values are what a label can hold.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from nodeagent.core.devices import Card
from nodeagent.core.plugin.settings import GPU, PREFIX, MigStrategy, Resource
from wire import names

#: GFD writes it whenever it runs, unless it was told not to.
TIMESTAMP: Final = f"{PREFIX}gfd.timestamp"
#: On a Node: the labels of which are ours. Theirs is a time in seconds.
OURS: Final = "moorage"
#: All labels that ``node_labels`` may return.
_WRITTEN: Final = frozenset(
    {
        TIMESTAMP,
        names.NODE_GPU_COUNT,
        names.NODE_GPU_PRODUCT,
        names.NODE_GPU_MEMORY,
        names.NODE_GPU_REPLICAS,
        names.NODE_GPU_SHARING,
        names.NODE_MIG_STRATEGY,
        f"{PREFIX}gpu.family",
        f"{PREFIX}gpu.compute.major",
        f"{PREFIX}gpu.compute.minor",
        f"{PREFIX}mig.capable",
    }
)
_WRITTEN_PREFIXES: Final = (f"{PREFIX}cuda.driver", f"{PREFIX}cuda.runtime")
_ODD: Final = re.compile(r"[^-A-Za-z0-9_.]+", re.ASCII)
_EDGES: Final = "-_."
_LONGEST: Final = 63
_VERSION: Final = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,9}))?(?:\.([0-9]{1,9}))?", re.ASCII)
#: Compute capability -> name of the family, from the newest to the oldest.
_FAMILIES: Final = (
    ((10, 0), "blackwell"),
    ((9, 0), "hopper"),
    ((8, 9), "ada-lovelace"),
    ((8, 0), "ampere"),
    ((7, 5), "turing"),
    ((7, 0), "volta"),
    ((6, 0), "pascal"),
    ((5, 0), "maxwell"),
    ((3, 0), "kepler"),
    ((2, 0), "fermi"),
    ((1, 0), "tesla"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """What the driver says of itself and of the model of the node's GPUs. "" and None: it does not say.

    ``cuda`` is the version of CUDA that it has, as in ``13.0``; ``compute`` the GPUs' compute capability.
    """

    version: str = ""
    cuda: str = ""
    compute: tuple[int, int] | None = None
    is_mig_capable: bool | None = None


def is_ours_to_label(present: Mapping[str, str]) -> bool:
    """Whether no GFD labels this node: no time of one, or a mark of ours."""
    return present.get(TIMESTAMP, OURS) == OURS


def changes(present: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str | None]:
    """Return what to write so that a node has the labels that are wanted; None takes one away.

    Nothing where GFD labels the node. Taken away is only what stands beside our mark.
    """
    if not is_ours_to_label(present):
        return {}
    found: dict[str, str | None] = {name: value for name, value in wanted.items() if present.get(name) != value}
    if TIMESTAMP in present:
        found |= {name: None for name in present if name not in wanted and _is_written_here(name)}
    return found


def _is_written_here(name: str) -> bool:
    return name in _WRITTEN or name.startswith(_WRITTEN_PREFIXES)


def node_labels(
    cards: Sequence[Card],
    resources: Sequence[Resource],
    *,
    driver: Driver,
    mig_strategy: MigStrategy = MigStrategy.NONE,
) -> dict[str, str]:
    """Return all labels of a node. Without GPUs there are none."""
    if not cards:
        return {}
    last = cards[-1]
    replicas = {device.uuid: max(1, device.replicas) for one in resources for device in one.devices}
    most = max((replicas.get(card.uuid, 1) for card in cards if not card.has_mig), default=0)
    is_renamed = not any(one.name == GPU and any(each.replicas for each in one.devices) for one in resources)
    found = {
        TIMESTAMP: OURS,
        names.NODE_GPU_COUNT: str(len(cards)),
        names.NODE_GPU_PRODUCT: _product(last.product, is_shared=most > 1 and not is_renamed),
        names.NODE_GPU_MEMORY: str(last.mem_mib) if last.mem_mib is not None else "",
        names.NODE_GPU_REPLICAS: str(most),
        names.NODE_GPU_SHARING: "time-slicing" if most > 1 else "none",
        names.NODE_MIG_STRATEGY: mig_strategy.value if mig_strategy is not MigStrategy.NONE else "",
        **_compute(driver.compute),
        **_versions("driver", driver.version, with_revision=True),
        **_versions("runtime", driver.cuda, with_revision=False),
    }
    if driver.is_mig_capable is not None:
        found[f"{PREFIX}mig.capable"] = "true" if driver.is_mig_capable else "false"
    return {name: value for name, value in found.items() if value}


def _product(product: str, *, is_shared: bool) -> str:
    suffix = "-SHARED" if is_shared else ""
    return _value(product, _LONGEST - len(suffix)) + suffix if product else ""


def _value(text: str, longest: int = _LONGEST) -> str:
    """A text as the value of a label."""
    return _ODD.sub("-", text).strip(_EDGES)[:longest].strip(_EDGES)


def _compute(capability: tuple[int, int] | None) -> dict[str, str]:
    if capability is None:
        return {}
    family = next((name for least, name in _FAMILIES if capability >= least), "")
    major, minor = capability
    return {
        f"{PREFIX}gpu.compute.major": str(major),
        f"{PREFIX}gpu.compute.minor": str(minor),
        f"{PREFIX}gpu.family": family,
    }


def _versions(what: str, version: str, *, with_revision: bool) -> dict[str, str]:
    """The parts of a version under GFD's names, and under those that it had before."""
    match = _VERSION.match(version)
    if match is None:
        return {}
    major, minor, revision = match[1], match[2] or "", match[3] or ""
    new, old = f"{PREFIX}cuda.{what}-version", f"{PREFIX}cuda.{what}"
    found = {f"{new}.major": major, f"{new}.minor": minor, f"{new}.full": _value(version)}
    if with_revision:
        return {
            **found,
            f"{new}.revision": revision,
            f"{old}.major": major,
            f"{old}.minor": minor,
            f"{old}.rev": revision,
        }
    return {**found, f"{old}.major": major, f"{old}.minor": minor}
