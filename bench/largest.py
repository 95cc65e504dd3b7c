"""What the largest pods cost the webhooks: ``python -m bench.largest`` prints one JSON object. Nothing here is a test.

A pod of each dialect is filled up to 64 KiB, 256 KiB and 1 MiB with each thing of which a pod may have many: as many as
admission reads (admission/raw_pod.py), the rest a long text; and once with more, which is refused. A review is the CPU
time from its bytes to the bytes of its answer: decoded, judged, encoded; of adopting, mutating, validating and a change
the dearest. The least of two rounds, in milliseconds: what others do on the machine adds only. ``growth`` is the time
at 1 MiB in parts of that at 256 KiB, for four times the bytes.
"""

from __future__ import annotations

import copy
import json
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from admission import raw_pod
from admission.raw_pod import Bounds
from admission.review import PodAdmission
from admission.settings import Choices, Settings
from bench.objects import FORMS, USUAL, Form, Manifest
from wire import names

SIZES_KIB: Final = (64, 256, 1024)
_ROUNDS: Final = 2

#: The n-th thing of many.
Item = Callable[[int], Any]
Fill = Callable[[Manifest, int], None]


def _listed(where: Sequence[str], item: Item) -> Fill:
    """Fill a list of the pod's spec; ``where``: field names, or a list's name of which the first entry is meant."""

    def fill(pod: Manifest, count: int) -> None:
        owner = pod["spec"]
        for field in where[:-1]:
            owner = owner[0] if field == "0" else owner.setdefault(field, {})
        owner[where[-1]] = [*owner.get(where[-1], ()), *map(item, range(count))]

    return fill


def _mapped(find: Callable[[Manifest], Manifest], field: str, key: str, value: str) -> Fill:
    def fill(pod: Manifest, count: int) -> None:
        owner = find(pod)
        made = {key.format(n=n): value for n in range(count)}
        owner[field] = {**made, **owner.get(field, {})}

    return fill


def _copies(field: str, **more: str) -> Fill:
    """As many copies of the first container, without its variables."""

    def fill(pod: Manifest, count: int) -> None:
        bare = {key: pod["spec"]["containers"][0][key] for key in ("image", "resources")}
        made = [{"name": f"{field[0]}x{n}", **copy.deepcopy(bare), **more} for n in range(count)]
        pod["spec"][field] = [*pod["spec"].get(field, ()), *made]

    return fill


def _text(character: str) -> Fill:
    def fill(pod: Manifest, count: int) -> None:
        for kind in ("annotations", "labels"):
            for key in pod["metadata"][kind]:
                if key not in {"app", "team"}:
                    pod["metadata"][kind][key] = character * count

    return fill


def _amounts(pod: Manifest, count: int) -> None:
    for container in pod["spec"]["containers"]:
        for resource in container["resources"]["limits"]:
            container["resources"]["limits"][resource] = "1" * count


def _metadata(pod: Manifest) -> Manifest:
    found: Manifest = pod["metadata"]
    return found


def _resources(pod: Manifest) -> Manifest:
    found: Manifest = pod["spec"]["containers"][0]["resources"]
    return found


def _both(pod: Manifest, count: int) -> None:
    for field in ("requests", "limits"):
        _mapped(_resources, field, "e.com/{n}", "1")(pod, count)


def _expression(number: int) -> Manifest:
    return {"key": "k", "operator": "In", "values": [str(number)]}


_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"

#: Ways to fill a pod, by name.
FILLS: Final[Mapping[str, Fill]] = {
    "containers": _copies("containers"),
    "empty containers": _listed(("containers",), lambda _: {}),
    "init containers": _copies("initContainers"),
    "empty init containers": _listed(("initContainers",), lambda _: {}),
    "sidecars": _copies("initContainers", restartPolicy="Always"),
    "ephemeral containers": _listed(("ephemeralContainers",), lambda n: {"name": f"e{n}"}),
    "env": _listed(("containers", "0", "env"), lambda n: {"name": f"V{n}"}),
    "empty env": _listed(("containers", "0", "env"), lambda _: {}),
    "env of fields": _listed(
        ("containers", "0", "env"), lambda n: {"name": str(n), "valueFrom": {"fieldRef": {"fieldPath": "a"}}}
    ),
    "env of ConfigMaps": _listed(
        ("containers", "0", "env"),
        lambda n: {
            "name": names.ENV_NUM_OF_GPUS,
            "valueFrom": {"configMapKeyRef": {"name": f"a{n}-shared-gpu-0"}},
        },
    ),
    "env of devices": _listed(
        ("containers", "0", "env"), lambda _: {"name": names.ENV_VISIBLE_DEVICES, "value": "void"}
    ),
    "envFrom": _listed(("containers", "0", "envFrom"), lambda _: {}),
    "envFrom of ConfigMaps": _listed(("containers", "0", "envFrom"), lambda n: {"configMapRef": {"name": f"{n}"}}),
    "volumes": _listed(("volumes",), lambda _: {}),
    "volumes of ConfigMaps": _listed(("volumes",), lambda n: {"name": str(n), "configMap": {"name": str(n)}}),
    "volumeMounts": _listed(("containers", "0", "volumeMounts"), lambda _: {}),
    "annotations": _mapped(_metadata, "annotations", "{n}", ""),
    "annotations of ours": _mapped(_metadata, "annotations", f"{names.MOORAGE_PREFIX}{{n}}", "1"),
    "annotations of NvFractions": _mapped(
        _metadata, "annotations", "nvidia.com/container.c{n}.gpu-memory.request", "1Gi"
    ),
    "labels": _mapped(_metadata, "labels", "{n}", ""),
    "limits": _mapped(_resources, "limits", "e.com/{n}", "1"),
    "requests and limits": _both,
    "limits of GPUs by index": _mapped(_resources, "limits", "nvidia.com/gpu-{n}", "1"),
    "limits of slices": _mapped(_resources, "limits", "nvidia.com/mig-1g.{n}gb", "1"),
    "claims of a container": _listed(("containers", "0", "resources", "claims"), lambda _: {}),
    "resizePolicy": _listed(("containers", "0", "resizePolicy"), lambda _: {}),
    "ports": _listed(("containers", "0", "ports"), lambda _: {}),
    "args": _listed(("containers", "0", "args"), lambda _: ""),
    "resourceClaims": _listed(("resourceClaims",), lambda _: {}),
    "schedulingGates": _listed(("schedulingGates",), lambda _: {}),
    "tolerations": _listed(("tolerations",), lambda _: {}),
    "spread constraints": _listed(("topologySpreadConstraints",), lambda _: {}),
    "node affinity": _listed(
        ("affinity", "nodeAffinity", _REQUIRED, "nodeSelectorTerms"), lambda n: {"matchExpressions": [_expression(n)]}
    ),
    "empty terms of node affinity": _listed(("affinity", "nodeAffinity", _REQUIRED, "nodeSelectorTerms"), lambda _: {}),
    "anti-affinity": _listed(
        ("affinity", "podAntiAffinity", _REQUIRED), lambda n: {"labelSelector": {"matchExpressions": [_expression(n)]}}
    ),
    "digits": _text("9"),
    "unicode": _text("\u4e2d"),
    "quotes": _text('"'),
    "digits of amounts": _amounts,
}


def over(form: Form, fill: Fill, size: int) -> Manifest:
    """Return a pod of our scheduler with about ``size`` bytes, of which as many as possible are of this kind."""
    few, more = (_filled(form, fill, count) for count in (10, 1010))
    each = (len(msgspec.json.encode(more)) - len(msgspec.json.encode(few))) / 1000
    return _filled(form, fill, int(size / each)) if each else few


def within(form: Form, fill: Fill, size: int) -> Manifest:
    """Return a pod of our scheduler with ``size`` bytes that is read: the most of this kind, and a long text."""
    low, high = 0, 16
    while high < size and _is_read(_filled(form, fill, high), size):
        low, high = high, 2 * high
    while low + max(1, low // 64) < high:
        count = (low + high) // 2
        if _is_read(_filled(form, fill, count), size):
            low = count
        else:
            high = count
    pod = _filled(form, fill, low)
    pod["spec"]["containers"][0]["args"] = ["x" * (size - len(msgspec.json.encode(pod)))]
    return pod


def _is_read(pod: Manifest, size: int) -> bool:
    return raw_pod.excess(pod, Bounds()) is None and len(msgspec.json.encode(pod)) <= size


def _filled(form: Form, fill: Fill, count: int) -> Manifest:
    pod = copy.deepcopy(form.pod)
    pod["spec"]["schedulerName"] = names.SCHEDULER_NAME
    fill(pod, count)
    return pod


def reviews_ms(form: Form, pod: Manifest, *, rounds: int = _ROUNDS) -> list[float]:
    """CPU time of the reviews that a pod causes: adopting, mutating, validating; and changing it if it is in."""
    admission = PodAdmission(Settings(choices=Choices(dialects=form.settings)), rng=random.Random(1))
    changed = {**pod, "metadata": {**pod["metadata"], "labels": {**pod["metadata"]["labels"], "team": "two"}}}
    found = [
        _least_ms(admission.adopting, _body({**pod, "spec": {**pod["spec"], "schedulerName": ""}}), rounds),
        _least_ms(admission.mutating, _body(pod), rounds),
        _least_ms(admission.validating, _body(pod), rounds),
    ]
    if raw_pod.excess(pod, Bounds()) is None:
        found.append(_least_ms(admission.validating, _body(changed, old=pod), rounds))
    return found


def _body(pod: Manifest, *, old: Manifest | None = None) -> bytes:
    request = {"uid": "1", "operation": "UPDATE" if old else "CREATE", "namespace": "t", "object": pod}
    if old:
        request["oldObject"] = old
    return msgspec.json.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})


def _least_ms(judge: Callable[[Manifest], Manifest], body: bytes, rounds: int) -> float:
    least = float("inf")
    for _ in range(rounds):
        begun = time.process_time_ns()
        msgspec.json.encode(judge(msgspec.json.decode(body)))
        least = min(least, (time.process_time_ns() - begun) / 1e6)
    return round(least, 1)


def _worst(
    form: Form, fills: Sequence[str], size: int, make: Callable[[Form, Fill, int], Manifest]
) -> dict[str, float]:
    """The dearest review by the way in which the pod is filled."""
    return {name: max(reviews_ms(form, make(form, FILLS[name], size))) for name in fills}


def measured(form: Form, make: Callable[[Form, Fill, int], Manifest]) -> dict[str, Any]:
    """The dearest review at each size, and how it grows with the last step."""
    worst = [_worst(form, tuple(FILLS), size * 1024, make) for size in SIZES_KIB]
    most = [max(each.values()) for each in worst]
    dearest = max(worst[-1], key=lambda name: worst[-1][name])
    figures = {f"ms_at_{size}_kib": ms for size, ms in zip(SIZES_KIB, most, strict=True)}
    return {**figures, "growth": round(most[-1] / most[-2], 1), "dearest": dearest}


def main() -> None:
    """Measure and print."""
    forms = {name: FORMS[name] for name in (*USUAL, "replicas", "metagpu over two GPUs")}
    figures = {name: measured(form, within) for name, form in forms.items()}
    json.dump({**figures, "larger than is read": measured(FORMS["kai"], over)}, sys.stdout, indent=2)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
