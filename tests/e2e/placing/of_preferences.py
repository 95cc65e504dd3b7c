"""Stories of what a pod prefers: of several nodes that fit it gets the one that it would rather have.

The preferred node is the last one by name, so that an order by name does not choose it.
"""

from __future__ import annotations

from typing import Any, Final

from tests.e2e.bare import Object, node
from tests.e2e.placing.story import OTHER, ZONE, Story, expression, matching, nodes, pod, pods, spread, term

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_A: Final = {"app": "a"}
_IS_A: Final = matching("app", "In", "a")
_TWO: Final = nodes("a z", zone="z1 z2", kind="small large")
_THREE: Final = nodes("a b z", zone="z1 z1 z2", kind="small small large")
_MIB: Final = 1024 * 1024


def _to_nodes(*weighted: tuple[int, Object]) -> Object:
    """Preferred affinity to nodes."""
    return {"nodeAffinity": {_PREFERRED: [{"weight": weight, "preference": each} for weight, each in weighted]}}


def _labelled(key: str, operator: str, *values: str) -> Object:
    return {"matchExpressions": [expression(key, operator, *values)]}


def _rather(kind: str, weight: int = 100, **more: Any) -> Object:
    """Preferred affinity (``podAffinity``) or anti-affinity (``podAntiAffinity``) to pods with ``app: a``."""
    return {kind: {_PREFERRED: [{"weight": weight, "podAffinityTerm": term(_IS_A, **more)}]}}


def _tainted(name: str, *taints: str) -> Object:
    return node(name, taints=[{"key": key, "value": "v", "effect": "PreferNoSchedule"} for key in taints])


def _soft(key: str, **others: Any) -> Object:
    return {**spread(key, 1, **others), "whenUnsatisfiable": "ScheduleAnyway"}


def _with_images(name: str, **sizes_mib: int) -> Object:
    made = node(name)
    images = [{"names": [f"{image}:latest"], "sizeBytes": size * _MIB} for image, size in sizes_mib.items()]
    return {**made, "status": {**made["status"], "images": images}}


def _other(*places: str) -> list[Object]:
    """Pods of another namespace."""
    return [pod(f"other-{number}", on=place, labels=_A, namespace=OTHER) for number, place in enumerate(places)]


def _two_images() -> Object:
    made = pod()
    first = made["spec"]["containers"][0]
    made["spec"]["containers"] = [first, {**first, "name": "side", "image": "side"}]
    return made


PREFERENCES: Final = (
    Story(
        "a pod goes to the node with the label that it prefers",
        _TWO,
        pod(affinity=_to_nodes((1, _labelled("kind", "In", "large")))),
        goes="z",
    ),
    Story(
        "a pod goes to a node without the label that it would rather not have",
        _TWO,
        pod(affinity=_to_nodes((1, _labelled("kind", "NotIn", "small")))),
        goes="z",
    ),
    Story(
        "of two preferred labels the one with the larger weight counts more",
        _TWO,
        pod(affinity=_to_nodes((10, _labelled("kind", "In", "small")), (90, _labelled("kind", "In", "large")))),
        goes="z",
    ),
    Story(
        "weights of preferred labels are added up",
        _TWO,
        pod(
            affinity=_to_nodes(
                (50, _labelled("kind", "In", "small")),
                (40, _labelled("kind", "In", "large")),
                (40, _labelled(ZONE, "In", "z2")),
            )
        ),
        goes="z",
    ),
    Story(
        "a preferred label that no node has keeps nobody waiting",
        _TWO,
        pod(affinity=_to_nodes((1, _labelled("kind", "In", "none")))),
        goes=("a", "z"),
    ),
    Story(
        "a node that has no room is not taken though it is preferred",
        _TWO,
        pod(asks={"cpu": "3"}, affinity=_to_nodes((100, _labelled("kind", "In", "small")))),
        running=pods("a", asks={"cpu": "2"}),
        goes="z",
    ),
    Story(
        "a pod goes into the zone of pods that it prefers",
        _TWO,
        pod(affinity=_rather("podAffinity")),
        running=pods("z", labels=_A),
        goes="z",
    ),
    Story(
        "pods that are preferred and are nowhere keep nobody waiting",
        _TWO,
        pod(affinity=_rather("podAffinity")),
        goes=("a", "z"),
    ),
    Story(
        "pods of other namespaces are not those that are preferred",
        _TWO,
        pod(affinity=_rather("podAffinity")),
        running=[*pods("z", labels=_A), *_other("a", "a")],
        goes="z",
    ),
    Story(
        "a preferred term names other namespaces",
        _TWO,
        pod(affinity=_rather("podAffinity", namespaces=[OTHER])),
        running=_other("z"),
        goes="z",
    ),
    Story(
        "a preferred term selects namespaces by their labels",
        _TWO,
        pod(affinity=_rather("podAffinity", namespaceSelector={"matchLabels": {"team": "theirs"}})),
        running=_other("z"),
        goes="z",
    ),
    Story(
        "a pod goes into a zone without the pods that it would rather not have beside it",
        _THREE,
        pod(affinity=_rather("podAntiAffinity")),
        running=pods("a", labels=_A),
        goes="z",
    ),
    Story(
        "where pods that it would rather not have are everywhere a pod goes to the fewest",
        _TWO,
        pod(affinity=_rather("podAntiAffinity")),
        running=pods("a a z", labels=_A),
        goes="z",
    ),
    Story(
        "pods that run prefer to have a new one beside them",
        _TWO,
        pod(labels=_A),
        running=pods("z", affinity=_rather("podAffinity")),
        goes="z",
    ),
    Story(
        "pods that run would rather not have a new one beside them",
        _TWO,
        pod(labels=_A),
        running=pods("a", affinity=_rather("podAntiAffinity")),
        goes="z",
    ),
    Story(
        "pods that need a new one beside them draw it",
        _TWO,
        pod(labels=_A),
        running=pods("z", labels=_A, affinity={"podAffinity": {_REQUIRED: [term(_IS_A)]}}),
        goes="z",
    ),
    Story(
        "a pod goes to a node without a taint by which it is not wanted",
        [_tainted("a", "t"), _tainted("z")],
        pod(),
        goes="z",
    ),
    Story(
        "a pod goes to the node with the fewest taints by which it is not wanted",
        [_tainted("a", "t", "u"), _tainted("z", "t")],
        pod(),
        goes="z",
    ),
    Story(
        "a taint by which a pod is not wanted does not count if it is tolerated",
        [_tainted("a", "t"), _tainted("z", "u")],
        pod(tolerations=[{"key": "u", "operator": "Exists", "effect": "PreferNoSchedule"}]),
        goes="z",
    ),
    Story(
        "taints by which a pod is not wanted on all nodes keep nobody waiting",
        [_tainted("a", "t"), _tainted("z", "t")],
        pod(),
        goes=("a", "z"),
    ),
    Story(
        "a pod makes its kind more evenly spread over zones",
        _THREE,
        pod(labels=_A, topologySpreadConstraints=[_soft(ZONE)]),
        running=pods("a b z", labels=_A),
        goes="z",
    ),
    Story(
        "a pod goes to the host with the fewest of its kind",
        _TWO,
        pod(labels=_A, topologySpreadConstraints=[_soft("kubernetes.io/hostname")]),
        running=pods("a a a z", labels=_A),
        goes="z",
    ),
    Story(
        "soft spread over a label that no node has keeps nobody waiting",
        _TWO,
        pod(labels=_A, topologySpreadConstraints=[_soft("rack")]),
        goes=("a", "z"),
    ),
    Story(
        "a pod goes to the node that has its image",
        [_with_images("a", other=900), _with_images("z", app=900)],
        pod(),
        goes="z",
    ),
    Story(
        "a pod goes to the node that has its large image rather than its small one",
        [_with_images("a", app=100), _with_images("z", side=800)],
        _two_images(),
        goes="z",
    ),
)
