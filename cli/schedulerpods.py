"""What pods of running schedulers say of a setting: by their arguments and environment, as the chart writes them. Pure.

A snapshot or an explanation is to follow what the scheduler follows, and its settings are no object of the API. What
declares settings (settings/scheduler.py) does I/O, so names are written here as well; a test compares them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from cli.componentversions import COMPONENT, ENDED
from cli.settings.declaring import prefix
from cli.settings.kinds import SWITCH
from wire import names
from wire.core import Container, Pod

#: The component, and the word of its command line.
_SCHEDULER: Final = "scheduler"
#: Keys of settings: a file of settings, the node pool, and whether DeviceTaintRules count (off by default).
CONFIG: Final = "config"
POOL: Final = "partition-label-value"
TAINT_RULES: Final = "device-taint-rules"


class SchedulerPods:
    """Pods of schedulers among all pods of a cluster."""

    def __init__(self) -> None:
        #: Node pool -> what each of its pods says, None: it can't be known.
        self._said: dict[str, set[bool | None]] = {}

    def note(self, pod: Pod) -> None:
        """Look at a pod. Only pods in the namespace of our components count."""
        meta = pod.metadata
        if meta.namespace != names.SYSTEM_NAMESPACE or (meta.labels or {}).get(COMPONENT) != _SCHEDULER:
            return
        if pod.status.phase in ENDED or meta.deletion_timestamp is not None:
            return
        for container in _containers(pod):
            pool = _text(container, POOL) or ""
            self._said.setdefault(pool, set()).add(_is_on(container, TAINT_RULES))

    def follow_taint_rules(self, pool: str) -> bool | None:
        """Whether the scheduler of a node pool follows DeviceTaintRules.

        None: no pod of it is seen, its pods differ, or a file of settings may say it, which is no part of the pod.
        """
        said = self._said.get(pool, set())
        return next(iter(said)) if len(said) == 1 else None


def _containers(pod: Pod) -> Iterator[Container]:
    return (each for each in pod.spec.containers if _SCHEDULER in _words(each))


def _words(container: Container) -> Sequence[str]:
    return (*(container.command or ()), *(container.args or ()))


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
