"""Whether the ConfigMaps are there that a pod names as required: its kubelet starts no container without them.

Known by name only. As long as they are not read, nobody waits for one; nor in a namespace with more than are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

import msgspec
from typing_extensions import override

from scheduler.core.convert.config_maps import ConfigMapRecord, Key
from scheduler.core.model.facts import Facts
from scheduler.core.model.records import PodRecord
from scheduler.core.model.verdict import Code, Verdict

#: Names that a reason lists.
_MOST: Final = 8
#: Names of a namespace that are kept: a tenant may make any number.
MOST_KEPT: Final = 10_000


class Names(Facts[Key, ConfigMapRecord]):
    """ConfigMaps that are there. ``cut``: namespaces with more than are kept, until the next list.

    ``cut_changed`` is called with such a namespace, and when it is none any more.
    """

    __slots__ = ("_counts", "_cut_changed", "cut")

    def __init__(
        self,
        changed: Callable[[ConfigMapRecord], None],
        *,
        read_changed: Callable[[], None],
        cut_changed: Callable[[str], None],
    ) -> None:
        super().__init__(changed, read_changed=read_changed)
        self._counts: Counter[str] = Counter()
        self._cut_changed = cut_changed
        self.cut: set[str] = set()

    @override
    def put(self, record: ConfigMapRecord) -> None:
        """Take a ConfigMap, if there is room for it."""
        if record.key in self:
            return
        if self._counts[record.namespace] < MOST_KEPT:
            self._counts[record.namespace] += 1
            super().put(record)
        elif record.namespace not in self.cut:
            self.cut.add(record.namespace)
            self._cut_changed(record.namespace)

    @override
    def drop(self, record: ConfigMapRecord) -> None:
        """It is gone."""
        if record.key in self:
            self._counts[record.namespace] -= 1
            if not self._counts[record.namespace]:
                del self._counts[record.namespace]
        super().drop(record)

    @override
    def replace(self, records: Iterable[ConfigMapRecord]) -> None:
        """Take the whole truth as of a list."""
        before, self.cut = self.cut, set()
        super().replace(records)
        for namespace in before - self.cut:
            self._cut_changed(namespace)


class ConfigMaps:
    """Which there are, and which pods wait and name one.

    ``changed`` is called when a decision on a pod may change, ``touched`` with the UID of each such pod.
    """

    def __init__(self, changed: Callable[[], None], touched: Callable[[str], None]) -> None:
        self._told = changed
        self._touched = touched
        #: Pods that wait, by UID; and those that name a ConfigMap, in the order in which they came.
        self._pods: dict[str, PodRecord] = {}
        self._users: dict[Key, dict[str, None]] = {}
        self.there = Names(self._map_changed, read_changed=self._read_changed, cut_changed=self._cut_changed)
        self.there.expect()

    def _map_changed(self, record: ConfigMapRecord) -> None:
        self._touch(self._users.get(record.key, {}))

    def _read_changed(self) -> None:
        self._touch(self._pods)

    def _cut_changed(self, namespace: str) -> None:
        self._touch({uid: pod for uid, pod in self._pods.items() if pod.namespace == namespace})

    def _touch(self, uids: dict[str, None] | dict[str, PodRecord]) -> None:
        for uid in uids:
            self._touched(uid)
        if uids:
            self._told()

    def put_pod(self, pod: PodRecord) -> None:
        """Take a pod as it is now."""
        self.drop_pod(pod.uid)
        if pod.node or not pod.config_maps:
            return
        self._pods[pod.uid] = pod
        for name in pod.config_maps:
            self._users.setdefault((pod.namespace, name), {})[pod.uid] = None

    def drop_pod(self, uid: str) -> None:
        """A pod is gone."""
        pod = self._pods.pop(uid, None)
        if pod is None:
            return
        for name in pod.config_maps:
            users = self._users[pod.namespace, name]
            del users[uid]
            if not users:
                del self._users[pod.namespace, name]

    def judged(self, pod: PodRecord) -> PodRecord:
        """A pod that waits, with the reason why its ConfigMaps keep it waiting, if they do."""
        is_known = self.there.is_current and pod.namespace not in self.there.cut
        if not pod.config_maps or pod.blocker is not None or not is_known:
            return pod
        missing = [name for name in pod.config_maps if (pod.namespace, name) not in self.there]
        if not missing:
            return pod
        shown = " ".join(missing[:_MOST])
        return msgspec.structs.replace(pod, blocker=Verdict(code=Code.CONFIG_MAP_NOT_FOUND, detail=shown))
