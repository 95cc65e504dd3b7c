"""Rows of upstream's whose answer differs here, or that ask nothing of it, each with the reason.

A row stands here only while its answer differs, so the list gets shorter as rules are added
(tests/oracle/test_tables.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_REFUSED: Final = "the API server refuses such a pod"
_GATE: Final = "the feature gate of the row is alpha, and off by default"
_GATE_OFF: Final = "the feature gate that the row turns off is on for good"
_INTERNAL: Final = "the row writes what the pod asks into the plug-in's state; the pod itself asks nothing"
_ARGUMENT: Final = "Moorage has no such setting of the plug-in"
_DEVICES: Final = "Moorage does not serve extended resources by DRA device classes"
_NAMED: Final = "a pod that names its node waits for no scheduler"
_UNBOUND: Final = "the row asks one plug-in only; another one, VolumeBinding, judges the claim, which is not bound"
_TWICE: Final = "kube-scheduler counts a volume twice that is attached here and that no pod uses; Moorage once"
_PENDING: Final = "an unbound claim of a running pod counts for no CSI driver here"
_GATE_ON: Final = "the feature gate that the row turns off is on by default"
_DEFAULTS: Final = "spread constraints that a cluster sets for all pods are not taken"
_STRATEGY: Final = "in the place of these plug-ins is the strategy, which orders nodes by their GPUs"
_NO_SCORE: Final = "storage that is left ranks no nodes here; the gate of the rows is alpha"
_ERROR: Final = "the plug-in reports an error, and Moorage names the claim"

_TOLERATIONS: Final = (
    "TestTaintTolerationFilter/"
    "Pod with Gt toleration can be scheduled on node when taint value is higher than threshold",
    "TestTaintTolerationFilter/"
    "Pod with Lt toleration can be scheduled on node when taint value is lower than threshold",
    "TestTaintTolerationFilterWithFeatureGate/"
    "Pod with Gt toleration can be scheduled when feature gate is enabled and taint value is higher",
    "TestTaintTolerationFilterWithFeatureGate/"
    "Pod with Lt toleration can be scheduled when feature gate is enabled and taint value is lower",
)
_LIMITS: Final = "nodevolumelimits/TestCSILimits"

#: Label of a row -> why it is left out.
LEFT_OUT: Final[Mapping[str, str]] = {
    **{
        f"interpodaffinity/TestRequiredAffinitySingleNode/{kind} fails PreFilter with an invalid {word} label syntax": (
            _REFUSED
        )
        for kind, word in (("PodAffinity", "affinity"), ("PodAntiAffinity", "antiaffinity"))
    },
    "podtopologyspread/TestPodTopoSignatures/pod w constraints": _REFUSED,
    "nodeaffinity/TestNodeAffinity/Doesn't match added affinity": _ARGUMENT,
    "nodedeclaredfeatures/TestFilter/Node does not match requirements": _INTERNAL,
    "nodedeclaredfeatures/TestFilter/Node has no declared features": _INTERNAL,
    "nodedeclaredfeatures/TestFilter/Node with some but not all required features": _INTERNAL,
    "nodedeclaredfeatures/TestFilter/Error getting pre-filter state": _INTERNAL,
    "nodename/TestNodeName/host doesn't match": _NAMED,
    "noderesources/testEnoughRequests/skip checking ignored extended resource": _ARGUMENT,
    "noderesources/testEnoughRequests/skip checking ignored extended resource via resource groups": _ARGUMENT,
    "noderesources/testEnoughRequests/extended resource backed by DRA": _DEVICES,
    "noderesources/testEnoughRequests/extended resource was backed by Device Plugin (Allocatable: 0)": _DEVICES,
    "noderesources/testRestartableInitContainers/"
    "not allow pod with restartable init containers if sidecar containers is disabled": _GATE_OFF,
    f"{_LIMITS}/should count VolumeAttachments towards volume limit when no pods exist": _TWICE,
    f"{_LIMITS}/ephemeral volume not owned": _ERROR,
    f"{_LIMITS}/ephemeral volume unbound": _UNBOUND,
    f"{_LIMITS}/ephemeral doesn't when node volume limit <= pods ephemeral CSI volume": _PENDING,
    **{f"tainttoleration/{name}": _GATE for name in _TOLERATIONS},
    "volumezone/TestWithBinding/unbound volume wait binding mode": _UNBOUND,
}

_SPREAD_SCORE: Final = "podtopologyspread/TestPodTopologySpreadScore"
_NODE_SCORE: Final = "nodeaffinity/TestNodeAffinityPriority"
#: The same of rows for scoring.
SCORES_LEFT_OUT: Final[Mapping[str, str]] = {
    "interpodaffinity/TestPreferredAffinity/invalid Affinity fails PreScore": _REFUSED,
    "interpodaffinity/TestPreferredAffinity/invalid AntiAffinity fails PreScore": _REFUSED,
    f"{_NODE_SCORE}/PreScore returns error when an incoming Pod has a broken affinity": _REFUSED,
    f"{_NODE_SCORE}/added affinity": _ARGUMENT,
    f"{_NODE_SCORE}/added affinity and pod has default affinity": _ARGUMENT,
    f"{_SPREAD_SCORE}/system defaulting, nodes don't have zone, pods match service": _DEFAULTS,
    f"{_SPREAD_SCORE}/matchLabelKeys ignored when feature gate disabled": _GATE_ON,
    **{
        f"tainttoleration/TestTaintTolerationScore/Numeric {word} operator:"
        f" pod with {word} toleration prefers nodes with matching SLA taint": _GATE
        for word in ("Gt", "Lt")
    },
}
#: Tests for scoring whose plug-in has no counterpart here -> the reason.
NOT_SCORED: Final[Mapping[str, str]] = {
    "noderesources/testFitScore": _STRATEGY,
    "noderesources/testNodeResourcesBalancedAllocation": _STRATEGY,
    "noderesources/TestLeastAllocatedScoringStrategy": _STRATEGY,
    "noderesources/TestMostAllocatedScoringStrategy": _STRATEGY,
    "noderesources/TestRequestedToCapacityRatioScoringStrategy": _STRATEGY,
    "noderesources/TestResourceBinPackingSingleExtended": _STRATEGY,
    "noderesources/TestResourceBinPackingMultipleExtended": _STRATEGY,
    "volumebinding/TestVolumeBinding": _NO_SCORE,
}
