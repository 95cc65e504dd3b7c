"""What pods depend on beside themselves, kept by events in any order, against a plain count of all that is known."""

from __future__ import annotations

import random
from typing import Any

import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.convert.volumes import attachment_record
from scheduler.core.filters.pod_rule import takes
from scheduler.core.model.pod_class import Domains
from scheduler.core.model.records import PodRecord
from tests.scheduler.core.objects import attachment, bound, changed, claim, cluster, csi_node, feed, node, pod, volume
from tests.whole import seeds
from wire.core import Pod
from wire.storage import VolumeAttachment

_NODES = tuple("abcd")
_APPS = tuple("xyz")
_DRIVERS = ("disk", "file")


class _World:
    """Random events, and what is true after them."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.cluster: Cluster = cluster(*(node(name) for name in _NODES))
        self.pods: dict[str, Pod] = {}
        self.made = 0
        self.attached: dict[str, VolumeAttachment] = {}
        self.labels: dict[str, dict[str, str]] = {name: {"host": name} for name in _NODES}
        self.volumes: dict[str, str] = {}
        self.limits: dict[str, dict[str, int]] = {}
        for name in _NODES:
            self._node(name)

    def _node(self, name: str) -> None:
        self.labels[name] = {"host": name}
        if self.rng.random() < 0.7:
            self.labels[name]["zone"] = self.rng.choice(_APPS)
        feed(self.cluster, node(name, labels=self.labels[name]))

    def step(self) -> None:
        match self.rng.randrange(9):
            case 0:
                self._node(self.rng.choice(_NODES))
            case 1:
                name = self.rng.choice(_NODES)
                self.labels.pop(name, None)
                self.cluster.remove_node(name)
            case 2:
                name = self.rng.choice(_NODES)
                self.limits[name] = {driver: self.rng.randrange(4) for driver in _DRIVERS if self.rng.random() < 0.6}
                feed(self.cluster, csi_node(name, **self.limits[name]))
            case 3:
                number = self.rng.randrange(6)
                self.volumes[f"d{number}"] = self.rng.choice(_DRIVERS)
                feed(
                    self.cluster, volume(f"v{number}", of=f"d{number}", csi=(self.volumes[f"d{number}"], f"h{number}"))
                )
                feed(self.cluster, claim(f"d{number}", f"v{number}"))
            case 8:
                self._attachment()
            case 4 if self.pods:
                self.cluster.remove_pod(self.pods.pop(self.rng.choice(sorted(self.pods))).metadata.uid)
            case _:
                self._pod()

    def _attachment(self) -> None:
        number, name = self.rng.randrange(6), f"x{self.rng.randrange(4)}"
        known = self.attached.pop(name, None)
        if known is not None:
            self.cluster.storage.attachments.attached.drop(attachment_record(known))
        else:
            driver = self.rng.choice(_DRIVERS)
            self.attached[name] = attachment(name, self.rng.choice(_NODES), of=f"v{number}", driver=driver)
            feed(self.cluster, self.attached[name])

    def _pod(self) -> None:
        name = f"p{self.rng.randrange(12)}"
        known = self.pods.get(name)
        if known is not None and not known.spec.node_name and self.rng.random() < 0.5:
            made = bound(known, self.rng.choice(_NODES))
        elif known is not None:
            made = changed(known, labels={"app": self.rng.choice(_APPS)})
        else:
            self.made += 1
            made = pod(name, uid=f"u{self.made}", labels={"app": self.rng.choice(_APPS)}, spec=self._spec())
        self.pods[name] = made
        feed(self.cluster, made)

    def _spec(self) -> dict[str, Any]:
        mounted = [
            {"name": f"m{number}", "persistentVolumeClaim": {"claimName": f"d{number}"}}
            for number in self.rng.sample(range(6), self.rng.randrange(4))
        ]
        operator = self.rng.choice(("In", "NotIn", "Exists", "DoesNotExist"))
        values = self.rng.sample(_APPS, self.rng.randrange(1, 3)) if operator in {"In", "NotIn"} else []
        expression = {"key": "app", "operator": operator, "values": values}
        terms = [
            {"topologyKey": key, "labelSelector": {"matchExpressions": [expression]}}
            for key in self.rng.sample(("host", "zone"), self.rng.randrange(3))
        ]
        rules = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        return {"volumes": mounted, "affinity": {"podAntiAffinity": rules}}

    def avoided(self, waiting: PodRecord) -> Domains:
        found = set()
        for uid in sorted(self.pods):
            owner = self.cluster.pod(self.pods[uid].metadata.uid)
            labels = self.labels.get(owner.node) if owner is not None and owner.node else None
            for term in owner.keeps_off if owner is not None and labels is not None else ():
                if takes(term.selector, waiting.labels) and labels is not None and term.key in labels:
                    found.add((term.key, labels[term.key]))
        return frozenset(found)

    def left(self, driver: str) -> dict[str, int]:
        used: dict[str, set[str]] = {name: set() for name in _NODES}
        for one in self.pods.values():
            for mounted in one.spec.volumes or ():
                name = (mounted.persistent_volume_claim or {})["claimName"]
                if one.spec.node_name and self.volumes.get(name) == driver:
                    used[one.spec.node_name].add(name)
        for spec in (one.spec for one in self.attached.values()):
            claimed = f"d{(spec.source.persistent_volume_name or '')[1:]}"
            if spec.attacher == driver and self.volumes.get(claimed) == driver:
                used[spec.node_name].add(claimed)
        return {name: most[driver] - len(used[name]) for name, most in self.limits.items() if driver in most}


@pytest.mark.parametrize("seed", seeds(40))
def test_what_is_kept_by_events_equals_a_count_of_everything(seed: int) -> None:
    world = _World(seed)
    for _ in range(60):
        world.step()
        for waiting in world.cluster.waiting():
            if waiting.blocker is None:
                assert waiting.cls.avoids == world.avoided(waiting)
        for driver in _DRIVERS:
            assert dict(world.cluster.storage.attachments.left(driver)) == world.left(driver)
