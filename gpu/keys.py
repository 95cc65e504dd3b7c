"""Labels and annotations of pods and workloads: which are read, in which place, and which values they take.

A key that is misspelt, in the wrong place, or has a value that nobody reads has no effect, and nothing else says so.
``moorage lint`` reports such keys of files, admission warns of those of a new pod. Both use the same words. Every name
of wire.names and wire.gangs is known, so a new one is in one place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from enum import StrEnum
from functools import lru_cache
from typing import Final

import msgspec

from gpu.translation import shown
from wire import gangs, go, names
from wire.crds.podgroup import NON_PREEMPTIBLE, PREEMPTIBLE

KAI_KEYS: Final = (
    names.GPU_FRACTION,
    names.GPU_MEMORY,
    names.GPU_FRACTION_NUM_DEVICES,
    names.GPU_FRACTION_CONTAINER_NAME,
)
_CLEARML_LABEL: Final = "clearml-injector/fraction"
#: What is read as a label only.
_LABELS: Final = frozenset({*gangs.STATED_LABELS, names.SUBGROUP_LABEL, names.TASK_PRIORITY_LABEL, _CLEARML_LABEL})
#: What is read as an annotation only.
_ANNOTATIONS: Final = frozenset({
    *KAI_KEYS, *gangs.STATED_ANNOTATIONS, names.POD_GROUP_NAME, names.SKIP_POD_GROUPER, names.IGNORE_WORKLOAD_API,
    names.MAX_RUNTIME, names.REQUIRE_ENFORCEMENT, names.HAMI_USE_TYPE, names.HAMI_NO_USE_TYPE, names.HAMI_USE_UUID,
    names.HAMI_NO_USE_UUID, names.VOLCANO_USE_UUID, names.VOLCANO_NO_USE_UUID,
})  # fmt: skip
#: What is read in both places, or is everybody's word.
_EVERYBODYS: Final = frozenset({names.PROJECT_LABEL, names.PRIORITY_CLASS_LABEL})
_SWITCH: Final = ("true", "false")
#: The values of those that have few.
_VALUES: Final[Mapping[str, tuple[str, ...]]] = {
    names.PREEMPTIBILITY_LABEL: (PREEMPTIBLE, NON_PREEMPTIBLE),
    names.SKIP_POD_GROUPER: _SWITCH,
    names.IGNORE_WORKLOAD_API: _SWITCH,
    names.ADOPT: _SWITCH,
}
#: A Queue's patience is judged with the Queue (admission/objects/queue.py).
_DURATIONS: Final = frozenset({names.PREEMPTION_DELAY, names.STALENESS_GRACE_PERIOD, names.MAX_RUNTIME})
_JUDGED: Final = frozenset({*_VALUES, *_DURATIONS, names.TASK_PRIORITY_LABEL})
#: API groups and domains of ours and of KAI: whose keys nobody else reads.
_OURS: Final = (names.MOORAGE_PREFIX, f"{names.KAI_GROUP}/", "runai/", "run.ai/")
#: Those of other systems whose words are read.
_OTHERS: Final = (
    "hami.io/", "volcano.sh/", "scheduling.volcano.sh/", "koordinator.sh/", "scheduling.koordinator.sh/",
    "gang.scheduling.koordinator.sh/", "pod-group.scheduling.sigs.k8s.io/", "nvidia.com/", "clearml-injector/",
)  # fmt: skip
_PREFIXES: Final = (*_OURS, *_OTHERS)
#: Written by KAI, and read by nobody here.
_KAIS: Final = (
    "kai.scheduler/last-start-timestamp",
    "kai.scheduler/last-eviction-timestamp",
    "kai.scheduler/numa-placement-predicted",
    "kai.scheduler/numa-placement-observed",
)
_NAMED: Final = [value for of in (names, gangs) for value in vars(of).values() if isinstance(value, str)]
_KNOWN: Final = frozenset({*_NAMED, *_KAIS, *gangs.ALL, _CLEARML_LABEL})
#: How known keys begin that go on with a name.
_BEGINNINGS: Final = tuple(
    each for each in _NAMED if "/" in each and each.endswith(("/", ".", "-")) and each != names.MOORAGE_PREFIX
)
_ASKED: Final = frozenset({*_LABELS, *_ANNOTATIONS} - _EVERYBODYS)
#: One of both is in the name of every key without a domain (``gpu``, ``vgpu``, ``GPU``).
_PU, _UPPER_PU = "pu", "PU"
#: How alike a key has to be to one that was probably meant.
_ALIKE: Final = 0.8
#: Characters of a key's name, and keys of one object, that are compared: a pod may have 10,000.
_LONGEST: Final = 63
_MOST_COMPARED: Final = 32


class KeyFault(StrEnum):
    """Why a key has no effect."""

    MISSPELT = "misspelt"
    WRONG_PLACE = "wrong-place"
    UNREAD_VALUE = "unread-value"
    UNKNOWN_KEY = "unknown-key"


class IgnoredKey(msgspec.Struct, frozen=True):
    """A key without effect. ``code`` is stable, for programs; ``text`` continues the key: why, and what to write."""

    code: KeyFault
    key: str
    text: str


def ignored_keys(labels: Mapping[str, str] | None, annotations: Mapping[str, str] | None) -> Iterator[IgnoredKey]:
    """Yield labels and annotations that are misspelt, in the wrong place, or have a value that nobody reads."""
    left = _MOST_COMPARED
    for place, other, elsewhere, written in (
        ("a label", "an annotation", _ANNOTATIONS, labels or {}),
        ("an annotation", "a label", _LABELS - _EVERYBODYS, annotations or {}),
    ):
        for key, value in written.items():
            if key in elsewhere:
                yield IgnoredKey(KeyFault.WRONG_PLACE, key, f"means nothing as {place}; it is {other}")
            elif key in _KNOWN:
                if key in _JUDGED and (why := _unread(key, value)):
                    yield IgnoredKey(KeyFault.UNREAD_VALUE, key, f"is {shown(value)!r}, which means nothing; {why}")
            elif left and ("/" in key or _PU in key or _UPPER_PU in key) and _is_compared(key):
                left -= 1
                if meant := _meant(key):
                    yield IgnoredKey(KeyFault.MISSPELT, key, f"means nothing; write {meant}")


def unknown_keys(labels: Mapping[str, str] | None, annotations: Mapping[str, str] | None) -> Iterator[IgnoredKey]:
    """Yield those of a system whose words are read that nobody here reads, and that are like no other."""
    for key in (*(labels or {}), *(annotations or {})):
        if key.startswith(_PREFIXES) and not is_known(key) and not _meant(key):
            yield IgnoredKey(KeyFault.UNKNOWN_KEY, key, "is not read by Moorage")


def is_ours(key: str) -> bool:
    """Whether nobody but KAI and Moorage reads keys of this beginning."""
    return key.startswith(_OURS)


def is_known(key: str) -> bool:
    """Whether a key is read or written here."""
    return key in _KNOWN or key.startswith(_BEGINNINGS)


def _is_compared(key: str) -> bool:
    """Whether a key that is not known may be a known one, misspelt."""
    is_near = key.startswith(_PREFIXES) or _plain(key) in KAI_KEYS
    return is_near and not key.startswith(_BEGINNINGS) and len(key.rpartition("/")[2]) <= _LONGEST


def _plain(key: str) -> str:
    return key.rpartition("/")[2].replace("_", "-").lower()


def _meant(key: str) -> str:
    """The key that was probably meant by one that is not known; "" if none."""
    prefix, plain = key.rpartition("/")[0], _plain(key)
    if plain in KAI_KEYS:
        return plain
    near = _near(prefix, is_ours=is_ours(key))
    return near[alike[0]] if (alike := get_close_matches(plain, near, 1, _ALIKE)) else ""


@lru_cache(32)
def _near(prefix: str, *, is_ours: bool) -> Mapping[str, str]:
    """Known keys by their names: of a prefix, and those that people put behind a prefix of ours."""
    ours = {known.rpartition("/")[2]: known for known in sorted(_ASKED)} if is_ours else {}
    return {known.rpartition("/")[2]: known for known in sorted(_KNOWN) if known.startswith(f"{prefix}/")} | ours


def _unread(key: str, value: str) -> str:
    """What a key allows in place of a value that nobody reads; "" if it is read, or not judged here."""
    if key in _VALUES and value not in _VALUES[key]:
        return f"allowed: {', '.join(_VALUES[key])}"
    if key in _DURATIONS and not go.is_duration(value):
        return "allowed: numbers with units of Go's durations, such as 90s or 1h30m"
    if key == names.TASK_PRIORITY_LABEL and go.parse_int(value) is None:
        return "allowed: a whole number"
    return ""
