"""Labels and annotations by which pods ask other schedulers to start together.

The scheduler and the grouping of workloads both read these, and neither may import the other. Sources: coscheduling of
kubernetes-sigs/scheduler-plugins, volcano.sh/apis (scheduling/v1beta1), koordinator.sh (apis/extension), YuniKorn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

#: A label. It names a PodGroup of scheduling.x-k8s.io.
COSCHEDULING_GROUP: Final = "scheduling.x-k8s.io/pod-group"

#: Annotations. They name a PodGroup of scheduling.volcano.sh.
VOLCANO_GROUP: Final = "scheduling.k8s.io/group-name"
VOLCANO_OWN_GROUP: Final = "scheduling.volcano.sh/group-name"
#: An annotation of owners: the minimum of the PodGroup that Volcano makes for them.
VOLCANO_LEAST: Final = "scheduling.volcano.sh/group-min-member"
#: An annotation: the name of a gang.
KOORDINATOR_NAME: Final = "gang.scheduling.koordinator.sh/name"
#: An annotation: the number of pods that start together, at which the pods themselves define the gang.
KOORDINATOR_LEAST: Final = "gang.scheduling.koordinator.sh/min-available"
#: Annotations of a pod, or of the PodGroup that it names.
KOORDINATOR_GROUPS: Final = "gang.scheduling.koordinator.sh/groups"
KOORDINATOR_MATCH_POLICY: Final = "gang.scheduling.koordinator.sh/match-policy"
KOORDINATOR_MATCH_POLICY_ALIAS: Final = "pod-group.scheduling.sigs.k8s.io/match-policy"
KOORDINATOR_TOPOLOGY: Final = "gang.scheduling.koordinator.sh/network-topology-spec"
#: A label. It names a PodGroup of scheduling.sigs.k8s.io, of Koordinator's or of early versions of coscheduling.
SIGS_GROUP: Final = "pod-group.scheduling.sigs.k8s.io"
#: Labels of lightweight coscheduling, which Koordinator reads as well: a gang without an object.
SIGS_NAME: Final = "pod-group.scheduling.sigs.k8s.io/name"
SIGS_LEAST: Final = "pod-group.scheduling.sigs.k8s.io/min-available"

#: All of them that put a pod into a gang, in the order in which a reason names them.
ALL: Final = (
    VOLCANO_GROUP,
    VOLCANO_OWN_GROUP,
    VOLCANO_LEAST,
    KOORDINATOR_NAME,
    KOORDINATOR_LEAST,
    SIGS_GROUP,
    SIGS_NAME,
    SIGS_LEAST,
    COSCHEDULING_GROUP,
    "yunikorn.apache.org/task-group-name",
)
#: Those of them that name a gang, and are translated into a PodGroup (workloads/core/foreign).
TRANSLATED: Final = frozenset(
    {
        f"label {COSCHEDULING_GROUP}",
        f"label {SIGS_GROUP}",
        f"label {SIGS_NAME}",
        f"annotation {VOLCANO_GROUP}",
        f"annotation {VOLCANO_OWN_GROUP}",
        f"annotation {KOORDINATOR_NAME}",
    }
)


def written(labels: Mapping[str, str] | None, annotations: Mapping[str, str] | None) -> Iterator[str]:
    """Yield the words of a pod with the place of each: "label scheduling.x-k8s.io/pod-group"."""
    for place, found in (("label", labels), ("annotation", annotations)):
        for name in ALL if found else ():
            if found and found.get(name):
                yield f"{place} {name}"
