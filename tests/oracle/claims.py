"""Devices for claims on random clusters, as Moorage and as kube-scheduler's allocator allocate them.

Left out is what differs on purpose (tests/oracle/test_claims.py has a case of each), and selectors that fail: devices
that have to differ where a request has several, pools of two drivers with one name, and pools with counters that are
not whole, which upstream finds on every node for ``All``.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from scheduler.core.claims.allocation import allocate
from scheduler.core.claims.cel import compile_selector
from scheduler.core.claims.devices_in_use import Taken
from scheduler.core.claims.inventory import Inventory
from scheduler.core.convert.devices import device_class_record, slice_record, taint_rule_record
from scheduler.core.convert.resource_claims import resource_claim_record
from scheduler.core.model.devices import DeviceRefusal
from scheduler.core.model.pod_class import Demand
from scheduler.core.model.records import NodeRecord
from tools.kubeoracle.program import Answer, Oracle, Question
from wire.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice

DRIVERS: Final = ("gpu.example.com", "nic.example.com")
_RACK: Final = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "rack", "operator": "In", "values": ["r1"]}]}]}

#: What a snapshot may have: a pool, a device or a claim.
FEATURES: Final = (
    *("counters", "shared", "taints", "admin", "ways", "rules", "all", "roaming", "broken", "selectors"),
    "taint rules",
)


def draw(seed: int) -> tuple[Question, frozenset[str]]:
    """Draw a snapshot of this number, and which features it has."""
    return _Drawing(seed).question()


class _Drawing:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._features = frozenset(each for each in FEATURES if self._random.random() < 0.35)
        self._nodes = [f"n{number}" for number in range(self._random.randint(1, 4))]
        self._devices: list[tuple[str, str, dict[str, Any]]] = []

    def question(self) -> tuple[Question, frozenset[str]]:
        slices = [each for driver in DRIVERS[: self._pick([1, 1, 2])] for each in self._slices(driver)]
        nodes = [{"metadata": {"name": n, "labels": {"rack": self._pick(["r1", "r2"])}}} for n in self._nodes]
        allocated = [self._allocated(number, *each) for number, each in enumerate(self._devices) if self._chance(0.25)]
        claims = [self._claim(f"c{number}") for number in range(self._pick([1, 1, 1, 2]))]
        devices = {
            "slices": slices,
            "classes": self._classes(),
            "rules": self._taint_rules(),
            "allocated": allocated,
            "claims": claims,
        }
        return {"nodes": nodes, "devices": devices}, self._features

    def _chance(self, part: float) -> bool:
        return self._random.random() < part

    def _pick(self, of: Sequence[Any]) -> Any:
        return self._random.choice(of)

    def _has(self, feature: str, part: float = 0.5) -> bool:
        return feature in self._features and self._chance(part)

    # --- devices -----------------------------------------------------------------------------------------------------
    def _slices(self, driver: str) -> list[dict[str, Any]]:
        made = [
            each
            for node in self._nodes
            if self._chance(0.8)
            for each in self._pool(driver, f"{driver[:3]}-{node}", {"nodeName": node})
        ]
        if self._has("roaming", 0.8):
            place = self._pick([{"allNodes": True}, {"nodeSelector": _RACK}, {"perDeviceNodeSelection": True}])
            made += self._pool(driver, f"{driver[:3]}-fabric", place)
        return made

    def _pool(self, driver: str, pool: str, place: dict[str, Any]) -> list[dict[str, Any]]:
        has_counters = self._has("counters", 0.7)
        each_place = place == {"perDeviceNodeSelection": True}
        names = [f"d{number}" for number in range(self._random.randint(1, 4))]
        listed = [self._device(name, has_counters=has_counters, has_place=each_place) for name in names]
        parts = [listed] if self._chance(0.7) else [listed[:1], listed[1:]]
        is_broken = not has_counters and self._has("broken", 0.4)
        fault = self._pick(["missing", "newer", "twice"]) if is_broken else ""
        count = len(parts) + has_counters + (fault == "missing")
        if fault == "twice":
            parts[-1] = [*parts[-1], dict(listed[0])]
        specs = [{**place, "devices": part} for part in parts]
        if has_counters:
            sets = [{"name": "card", "counters": {"slices": {"value": str(self._random.randint(2, 6))}}}]
            specs.append({**place, "sharedCounters": sets})
        if fault == "newer":
            specs.append({**place, "devices": [self._device("new", has_counters=False, has_place=each_place)]})
        self._devices += [(driver, pool, each) for each in listed]
        newest = len(specs) - 1 if fault == "newer" else len(specs)
        return [
            {
                "metadata": {"name": f"{driver}-{pool}-{number}"},
                "spec": {"driver": driver, "pool": _named(pool, count, is_newer=number == newest), **spec},
            }
            for number, spec in enumerate(specs)
        ]

    def _device(self, name: str, *, has_counters: bool, has_place: bool) -> dict[str, Any]:
        made: dict[str, Any] = {
            "name": name,
            "attributes": {
                "model": {"string": self._pick(["a", "b"])},
                "numa": {"int": self._pick([0, 1])},
                "version": {"version": self._pick(["1.9.0", "1.10.0", "1.10.0-rc.1"])},
            },
            "capacity": {"memory": {"value": self._pick(["1Gi", "2Gi", "3Gi", "4Gi"])}},
        }
        if self._chance(0.3):
            made["attributes"]["rare"] = {"bool": self._pick([True, False])}
        if has_counters and self._chance(0.8):
            drawn = {"slices": {"value": str(self._random.randint(1, 3))}}
            made["consumesCounters"] = [{"counterSet": "card", "counters": drawn}]
        if self._has("shared"):
            made["allowMultipleAllocations"] = True
            if self._chance(0.6):
                made["capacity"]["memory"] = {"value": "4Gi", "requestPolicy": self._policy()}
        if self._has("taints"):
            made["taints"] = [self._taint()]
        if has_place:
            made.update(
                self._pick([{"nodeName": self._pick(self._nodes)}, {"allNodes": True}, {"nodeSelector": _RACK}])
            )
        return made

    def _taint(self) -> dict[str, Any]:
        effect = self._pick(["NoSchedule", "NoExecute", "None"])
        return {"key": self._pick(["x", "y"]), "value": self._pick(["", "v"]), "effect": effect}

    def _taint_rules(self) -> list[dict[str, Any]]:
        """Rules of which some select a driver, a pool or a device that is there, and some none."""
        if "taint rules" not in self._features:
            return []
        made = []
        for number in range(self._pick([1, 1, 2, 3])):
            driver, pool, device = self._pick([(*each[:2], each[2]["name"]) for each in self._devices] or [("x",) * 3])
            of = {"driver": driver, "pool": pool, "device": device}
            fields = self._pick([("device",), ("driver",), ("pool",), ("pool", "device"), ("driver", "pool", "device")])
            selector = {name: of[name] for name in fields}
            spec: dict[str, Any] = {"taint": self._taint()}
            if not self._chance(0.1):
                spec["deviceSelector"] = selector
            made.append({"metadata": {"name": f"rule{number}"}, "spec": spec})
        return made

    def _policy(self) -> dict[str, Any]:
        span = {"min": "1Gi", "max": self._pick(["2Gi", "4Gi"]), "step": "1Gi"}
        values = {"default": "1Gi", "validValues": ["1Gi", "2Gi"]}
        return values if self._chance(0.5) else {"default": "1Gi", "validRange": span}

    def _allocated(self, number: int, driver: str, pool: str, device: dict[str, Any]) -> dict[str, Any]:
        result: dict[str, Any] = {"request": "r", "driver": driver, "pool": pool, "device": device["name"]}
        if device.get("allowMultipleAllocations"):
            result |= {"shareID": f"s{number}", "consumedCapacity": {"memory": self._pick(["1Gi", "2Gi"])}}
        elif self._has("admin", 0.3):
            result["adminAccess"] = True
        status = {"allocation": {"devices": {"results": [result]}}}
        return {**self._claim_of(f"used{number}", [], []), "status": status}

    # --- claims ------------------------------------------------------------------------------------------------------
    def _classes(self) -> list[dict[str, Any]]:
        of = [("gpu", [f"device.driver == '{DRIVERS[0]}'"]), ("any", [])]
        return [{"metadata": {"name": name}, "spec": {"selectors": _selectors(listed)}} for name, listed in of]

    def _claim(self, name: str) -> dict[str, Any]:
        requests = [self._request(f"r{number}") for number in range(self._pick([1, 1, 2]))]
        return self._claim_of(name, requests, self._rules(requests) if self._has("rules", 0.9) else [])

    def _claim_of(self, name: str, requests: list[Any], rules: list[Any]) -> dict[str, Any]:
        meta = {"name": name, "namespace": "ns", "uid": f"{name}-uid"}
        return {"metadata": meta, "spec": {"devices": {"requests": requests, "constraints": rules}}}

    def _request(self, name: str) -> dict[str, Any]:
        if self._has("ways", 0.7):
            return {"name": name, "firstAvailable": [{"name": f"w{at}", **self._ask(0.0)} for at in range(2)]}
        return {"name": name, "exactly": self._ask(0.3)}

    def _ask(self, admin: float) -> dict[str, Any]:
        made: dict[str, Any] = {"deviceClassName": self._pick(["gpu", "gpu", "any"])}
        if self._has("all", 0.4):
            made["allocationMode"] = "All"
        else:
            made |= {"allocationMode": "ExactCount", "count": self._pick([1, 1, 1, 2, 3])}
        if self._has("selectors", 0.8):
            made["selectors"] = _selectors([self._expression()])
        if self._has("admin", admin):
            made["adminAccess"] = True
        if self._has("taints") or self._has("taint rules"):
            toleration = {"key": self._pick(["x", "y", ""]), "operator": "Exists"}
            made["tolerations"] = [self._pick([toleration, {"key": "x", "operator": "Equal", "value": "v"}])]
        if self._has("shared", 0.7):
            made["capacity"] = {
                "requests": {self._pick(["memory"] * 5 + ["none"]): self._pick(["512Mi", "1Gi", "2Gi"])}
            }
        return made

    def _expression(self) -> str:
        own = "device.attributes[device.driver]"
        capacity = "device.capacity[device.driver]"
        return str(
            self._pick(
                [
                    f"{own}.model == 'a'",
                    f"device.driver == '{DRIVERS[0]}' && device.attributes['{DRIVERS[0]}'].model == 'b'",
                    f"!has(device.attributes['{DRIVERS[1]}'].model)",
                    f"'{DRIVERS[1]}' in device.attributes",
                    f"{own}.numa < 1",
                    f"{own}.model in ['b', 'c'] || {own}.numa == 1",
                    f"{own}.version.isGreaterThan(semver('1.9.0'))",
                    f"{own}.version.compareTo(semver('1.10.0')) < 0",
                    f"{capacity}.memory.compareTo(quantity('2Gi')) >= 0",
                    f"has({own}.rare) && {own}.rare",
                    f"cel.bind(a, {own}, a.model == 'b' && a.numa == 0)",
                    "device.driver.startsWith('gpu')",
                ]
            )
        )

    def _rules(self, requests: list[Any]) -> list[dict[str, Any]]:
        made = []
        for _ in range(self._pick([1, 1, 2])):
            attribute = f"{DRIVERS[0]}/{self._pick(['model', 'numa', 'rare'])}"
            of = self._pick([[], [self._pick(requests)["name"]]])
            is_single = all(_most(each) == 1 for each in requests)
            kind = "distinctAttribute" if is_single and self._chance(0.4) else "matchAttribute"
            made.append({kind: attribute, "requests": of})
        return made


def _named(pool: str, count: int, *, is_newer: bool) -> dict[str, Any]:
    if is_newer:
        return {"name": pool, "generation": 2, "resourceSliceCount": 1}
    return {"name": pool, "generation": 1, "resourceSliceCount": count}


def _most(request: dict[str, Any]) -> int:
    """How many devices a request can have at most; 99 if that is open."""
    asks = [request["exactly"]] if "exactly" in request else request["firstAvailable"]
    return int(max(99 if ask["allocationMode"] == "All" else ask["count"] for ask in asks))


def _selectors(expressions: Sequence[str]) -> list[dict[str, Any]]:
    return [{"cel": {"expression": each}} for each in expressions]


#: kube-scheduler ends its attempt where devices asked for with ``All`` break a constraint; other ways are tried here.
_ENDS_ATTEMPT: Final = "because a claim constraint would not be satisfied"
_AT_ONCE: Final = 16


@dataclass(slots=True)
class FoundClaims:
    """What was compared: nodes with and without devices, in all and by feature; and in what the answers differ."""

    let_in: Counter[str] = field(default_factory=Counter)
    kept_out: Counter[str] = field(default_factory=Counter)
    #: Nodes where kube-scheduler ended its attempt and a way was found here.
    went_on: int = 0
    differences: list[str] = field(default_factory=list)

    def one_sided(self) -> list[str]:
        """Features with which every node had devices, or none."""
        return [each for each in FEATURES if not self.let_in[each] or not self.kept_out[each]]


def ours(question: Question) -> dict[str, str]:
    """Of each node why it has no devices, "" if it has."""
    asked = question["devices"]
    inventory = Inventory(lambda _: None, read_changed=lambda: None, compiler=compile_selector)
    inventory.rules.replace(
        taint_rule_record(each) for each in msgspec.convert(asked.get("rules", []), list[DeviceTaintRule])
    )
    inventory.slices.replace(slice_record(each) for each in msgspec.convert(asked["slices"], list[ResourceSlice]))
    classes = msgspec.convert(asked["classes"], list[DeviceClass])
    inventory.classes.replace(device_class_record(each) for each in classes)
    taken = Taken()
    for claim in msgspec.convert(asked["allocated"], list[ResourceClaim]):
        record = resource_claim_record(claim)
        taken.put(record.uid, record.allocation.results if record.allocation is not None else ())
    records = [resource_claim_record(each) for each in msgspec.convert(asked["claims"], list[ResourceClaim])]
    needs = [record.need for record in records if record.need is not None]
    if len(needs) < len(records):
        return dict.fromkeys((each["metadata"]["name"] for each in question["nodes"]), "not read")
    found = {}
    for node in map(_node, question["nodes"]):
        answer = allocate(needs, node, inventory.view(), taken)
        found[node.name] = f"{answer.code.name} {answer.detail}" if isinstance(answer, DeviceRefusal) else ""
    return found


def _node(written: dict[str, Any]) -> NodeRecord:
    return NodeRecord(
        name=written["metadata"]["name"],
        uid="",
        labels=written["metadata"]["labels"],
        taints=(),
        is_ready=True,
        is_cordoned=False,
        capacity=Demand(),
        pods=110,
    )


def run(oracle: Oracle, seeds: Iterable[int], *, answer: Callable[[Question], dict[str, str]] = ours) -> FoundClaims:
    """Compare the snapshots of these seeds."""
    found, numbers = FoundClaims(), list(seeds)
    for start in range(0, len(numbers), _AT_ONCE):
        batch = [(seed, *draw(seed)) for seed in numbers[start : start + _AT_ONCE]]
        for (seed, question, features), theirs in zip(batch, oracle.ask([q for _, q, _ in batch]), strict=True):
            _compare(found, seed, answer(question), theirs)
            for name in answer(question):
                side = found.let_in if name in (theirs.feasible or ()) else found.kept_out
                side.update(["", *features])
    return found


def _compare(found: FoundClaims, seed: int, mine: dict[str, str], theirs: Answer) -> None:
    for name, why in mine.items():
        is_in = name in (theirs.feasible or ())
        if is_in == (not why):
            continue
        reason = (theirs.why or {}).get(name)
        texts = " ".join((reason.reasons if reason is not None else None) or ())
        if not why and _ENDS_ATTEMPT in texts:
            found.went_on += 1
        else:
            found.differences.append(f"snapshot {seed}, node {name}: here {why or 'in'}, there {texts or 'in'}")
