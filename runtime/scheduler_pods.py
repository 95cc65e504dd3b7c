"""What pods of running schedulers say of a setting: by their arguments and environment, as the chart writes them. Pure.

A snapshot or an explanation is to follow what the scheduler follows, and its settings are no object of the API. What
declares settings (settings/scheduler.py) does I/O, so names are written here as well; a test compares them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from enum import Enum
from typing import Final

import msgspec

from runtime.settings.declaration import prefix
from runtime.settings.kinds import SWITCH
from runtime.versions import COMPONENT
from wire import names
from wire.core import Container, Pod

#: The component, and the word of its command line.
_SCHEDULER: Final = "scheduler"
#: Keys of settings: a file of settings, the node pool, and whether DeviceTaintRules count (off by default).
CONFIG: Final = "config"
POOL: Final = "partition-label-value"
TAINT_RULES: Final = "device-taint-rules"


class Unsure(Enum):
    """Why pods do not say how a scheduler is set."""

    UNSEEN = "no pod of it is seen"
    DIFFER = "its pods differ"
    ELSEWHERE = "a file of settings or a ConfigMap may say it"


class _Said(msgspec.Struct, frozen=True):
    """What a container says of the node pool and of DeviceTaintRules; None: it lies elsewhere."""

    pool: str | None
    follows: bool | None


class SchedulerPods:
    """Pods of schedulers among all pods of a cluster."""

    def __init__(self) -> None:
        #: By UID.
        self._said: dict[str, list[_Said]] = {}

    def note(self, pod: Pod) -> None:
        """Look at a version of a pod. Only pods in the namespace of our components count."""
        meta = pod.metadata
        self._said.pop(meta.uid, None)
        if meta.namespace != names.SYSTEM_NAMESPACE or (meta.labels or {}).get(COMPONENT) != _SCHEDULER:
            return
        if pod.status.phase in names.ENDED_PHASES or meta.deletion_timestamp is not None:
            return
        said = [_Said(_pool(container), _is_on(container, TAINT_RULES)) for container in _containers(pod)]
        if said:
            self._said[meta.uid] = said

    def follow_taint_rules(self, pool: str, there: Collection[str]) -> bool | Unsure:
        """Whether the scheduler of a node pool follows DeviceTaintRules, or why that is not known.

        ``there``: UIDs of the pods that count. Others may have been noted before a list was begun again.

        A pod that names its pool elsewhere may be of any, so it counts only where no other pod is of this one.
        """
        found = [said for uid, listed in self._said.items() if uid in there for said in listed]
        of_pool = {said.follows for said in found if said.pool == pool}
        if None in of_pool or (not of_pool and any(said.pool is None for said in found)):
            return Unsure.ELSEWHERE
        if len(of_pool) > 1:
            return Unsure.DIFFER
        return of_pool == {True} if of_pool else Unsure.UNSEEN


def _containers(pod: Pod) -> Iterator[Container]:
    return (each for each in pod.spec.containers if _SCHEDULER in _words(each))


def _words(container: Container) -> Sequence[str]:
    return (*(container.command or ()), *(container.args or ()))


def _pool(container: Container) -> str | None:
    """The node pool, "" for the default; None: not known."""
    text = _text(container, POOL)
    return text if text is not None else None if _is_set_elsewhere(container, POOL) else ""


def _is_on(container: Container, key: str) -> bool | None:
    """Whether a switch that is off by default is on; None: not known."""
    text = _text(container, key)
    if text is None:
        return None if _is_set_elsewhere(container, key) else False
    try:
        return bool(SWITCH.read(text))
    except ValueError:
        return None


def _text(container: Container, key: str) -> str | None:
    """A setting as it is written: the command line goes before the environment."""
    words, found = _words(container), None
    for at, word in enumerate(words):
        name, has_value, value = word.partition("=")
        if name == f"--{key}":
            following = words[at + 1] if at + 1 < len(words) else "-"
            found = value if has_value else SWITCH.bare if following.startswith("-") else following
    if found is not None:
        return found
    given = [each.value for each in container.env or () if each.name == _variable(key) and each.value_from is None]
    return given[-1] if given else None


def _is_set_elsewhere(container: Container, key: str) -> bool:
    """Whether something that is no part of the pod may say it: a file of settings, a ConfigMap, a Secret."""
    is_referred_to = any(each.name == _variable(key) for each in container.env or ())
    return is_referred_to or bool(container.env_from) or bool(_text(container, CONFIG))


def _variable(key: str) -> str:
    return prefix(_SCHEDULER) + key.replace("-", "_").upper()
