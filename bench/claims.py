"""What devices for claims cost: ``python -m bench.claims`` prints one JSON line per measurement.

Times are CPU time of the process. Each node has one slice of 80 devices with seven attributes; a fifth of the nodes has
each of five models. The claim asks for four devices of two of the models by CEL, with memory and version compared, on
one NUMA node.

- ``inventory``: ``read_s`` is decoding and reading all slices, ``view_ms`` the first view of them.
- ``class``: ``first_ms`` is asking every node for the first time, expressions evaluated; ``again_ms`` a second time;
  ``full_ms`` where all devices are in use.
- ``gang``: ``members`` claims, each allocated and its node asked again; ``undone_ms`` takes them back.
- ``event``: ``slice_us`` is one slice that changes, with a new view and its node asked again; ``claim_us`` a claim that
  comes and goes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

import msgspec

from bench.processes import divisor, report
from scheduler.core.claims.allocation import allocate
from scheduler.core.claims.cel import compile_selector
from scheduler.core.claims.devices_in_use import Taken
from scheduler.core.claims.inventory import Inventory
from scheduler.core.convert.devices import device_class_record, slice_record
from scheduler.core.convert.resource_claims import resource_claim_record
from scheduler.core.model.device_requests import DeviceNeed
from scheduler.core.model.devices import DeviceRefusal, DeviceResult
from scheduler.core.model.pod_class import Demand
from scheduler.core.model.records import NodeRecord
from wire.resource import DeviceClass, ResourceClaim, ResourceSlice

_DRIVER: Final = "gpu.example.com"
_MODELS: Final = ("h100", "a100", "h200", "b200", "l40")
_EVENTS: Final = 200


def _slice(number: int, devices: int) -> bytes:
    listed = [
        {
            "name": f"gpu-{at}",
            "attributes": {
                "model": {"string": _MODELS[number % len(_MODELS)]},
                "uuid": {"string": f"GPU-{number}-{at}"},
                "index": {"int": at},
                "numa": {"int": at * 2 // devices},
                "driverVersion": {"version": "12.4.1"},
                "pcieRoot": {"string": f"pci{at // 4}"},
                "type": {"string": "gpu"},
            },
            "capacity": {"memory": {"value": "80Gi"}},
        }
        for at in range(devices)
    ]
    name = _node_name(number)
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": _DRIVER, "pool": pool, "nodeName": name, "devices": listed}
    return msgspec.json.encode({"metadata": {"name": name}, "spec": spec})


def _node_name(number: int) -> str:
    return f"node-{number:05}"


def _node(number: int) -> NodeRecord:
    return NodeRecord(
        name=_node_name(number),
        uid="",
        labels={},
        taints=(),
        is_ready=True,
        is_cordoned=False,
        capacity=Demand(),
        pods=110,
    )


def _need() -> DeviceNeed:
    own = f'device.attributes["{_DRIVER}"]'
    expressions = (
        f'{own}.model == "h100" || {own}.model == "a100"',
        f'device.capacity["{_DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0',
        f'{own}.driverVersion.isGreaterThan(semver("12.0.0"))',
    )
    selectors = [{"cel": {"expression": each}} for each in expressions]
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 4, "selectors": selectors}
    rules = [{"matchAttribute": f"{_DRIVER}/numa"}]
    devices = {"requests": [{"name": "r", "exactly": exactly}], "constraints": rules}
    need = resource_claim_record(msgspec.convert({"spec": {"devices": devices}}, ResourceClaim)).need
    if need is None:
        raise AssertionError("the claim can't be read")
    return need


class _Bench:
    def __init__(self, nodes: int, devices: int) -> None:
        self._devices = devices
        self._sizes = {"nodes": nodes, "devices": nodes * devices}
        self._wire = [_slice(number, devices) for number in range(nodes)]
        self._nodes = [_node(number) for number in range(nodes)]
        self._decoder = msgspec.json.Decoder(ResourceSlice)
        self._need = _need()
        self._inventory = Inventory(lambda _: None, read_changed=lambda: None, compiler=compile_selector)
        # The library is loaded once, in 0.1 s.
        compile_selector("true")

    def inventory(self) -> None:
        began = time.process_time()
        self._inventory.slices.replace(slice_record(self._decoder.decode(each)) for each in self._wire)
        read = time.process_time() - began
        selectors = [{"cel": {"expression": f"device.driver == '{_DRIVER}'"}}]
        written = {"metadata": {"name": "gpu"}, "spec": {"selectors": selectors}}
        self._inventory.classes.put(device_class_record(msgspec.convert(written, DeviceClass)))
        began = time.process_time()
        self._inventory.view()
        report("claims.inventory", **self._sizes, read_s=round(read, 3), view_ms=_ms(began))

    def _fitting(self, taken: Taken) -> list[NodeRecord]:
        view = self._inventory.view()
        return [
            each for each in self._nodes if not isinstance(allocate([self._need], each, view, taken), DeviceRefusal)
        ]

    def classes(self) -> list[NodeRecord]:
        began = time.process_time()
        fitting = self._fitting(Taken())
        first, began = _ms(began), time.process_time()
        self._fitting(Taken())
        again = _ms(began)
        full = Taken()
        for number, each in enumerate(self._nodes):
            names = [f"gpu-{at}" for at in range(self._devices)]
            full.put(f"c{number}", [_result(each.name, name) for name in names])
        began = time.process_time()
        none = self._fitting(full)
        report(
            "claims.class",
            **self._sizes,
            fit=len(fitting),
            first_ms=first,
            again_ms=again,
            full_ms=_ms(began),
            fit_full=len(none),
        )
        return fitting

    def gang(self, fitting: Sequence[NodeRecord], members: int) -> None:
        view, taken, left = self._inventory.view(), Taken().fork(), list(reversed(fitting))
        began, placed = time.process_time(), 0
        while placed < members and left:
            found = allocate([self._need], left[-1], view, taken)
            if isinstance(found, DeviceRefusal):
                left.pop()
                continue
            taken.put(f"c{placed}", found[0].results)
            placed += 1
            allocate([self._need], left[-1], view, taken)
        took = _ms(began)
        began = time.process_time()
        for number in range(placed):
            taken.drop(f"c{number}")
        report("claims.gang", **self._sizes, members=placed, ms=took, undone_ms=_ms(began))

    def events(self) -> None:
        taken = Taken()
        began = time.process_time()
        for turn in range(_EVENTS):
            number = turn % len(self._wire)
            newer = self._wire[number].replace(b'"generation":1', b'"generation":%d' % (turn + 2))
            self._inventory.slices.put(slice_record(self._decoder.decode(newer)))
            allocate([self._need], self._nodes[number], self._inventory.view(), taken)
        slices = (time.process_time() - began) / _EVENTS
        began = time.process_time()
        for turn in range(_EVENTS):
            taken.put("c", [_result(_node_name(turn), f"gpu-{at}") for at in range(4)])
            taken.drop("c")
        claims = (time.process_time() - began) / _EVENTS
        report("claims.event", **self._sizes, slice_us=round(slices * 1e6), claim_us=round(claims * 1e6, 1))


def _result(pool: str, device: str) -> DeviceResult:
    return DeviceResult(request="r", driver=_DRIVER, pool=pool, device=device)


def _ms(began: float) -> float:
    return round((time.process_time() - began) * 1e3, 1)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure at two sizes."""
    scale = divisor("Measure what devices for claims cost decisions.", arguments)
    for nodes in (1_000, 5_000):
        bench = _Bench(nodes // scale, 80)
        bench.inventory()
        bench.gang(bench.classes(), 256 // scale)
        bench.events()


if __name__ == "__main__":
    main()
