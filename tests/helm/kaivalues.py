"""The values file of KAI's own chart, as of v0.18 and v0.9: every key with its default. Facts, without its words."""

from __future__ import annotations

from typing import Any, Final

Values = dict[str, Any]


def _image(name: str) -> Values:
    return {"name": name, "pullPolicy": "IfNotPresent"}


_BUDGET: Final = {"enabled": True, "maxUnavailable": 1}
_UNLIMITED: Final = {name: {"quota": 0, "limit": -1, "overQuotaWeight": 1} for name in ("cpu", "gpu", "memory")}
_QUEUES: Final = {
    "createDefaultQueue": True,
    "parentName": "default-parent-queue",
    "childName": "default-queue",
    "parentResources": _UNLIMITED,
    "childResources": _UNLIMITED,
}
_RESERVATIONS: Final = dict.fromkeys(("namespace", "serviceAccount", "appLabel"), "kai-resource-reservation")

V0_18: Final[Values] = {
    "openshift": False,
    "global": {
        "registry": "registry/local/kai-scheduler",
        "tag": "",
        "fipsMode": "off",
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {},
        "podSecurityContext": {},
        "imagePullSecrets": [],
        "leaderElection": False,
        "gpuSharingMode": "",
        "nvFractions": {"set": False},
        "blockNvidiaVisibleDevices": False,
        "clusterAutoscaling": False,
        "nodeSelector": {},
        "affinity": {},
        "requireDefaultPodAntiAffinityTerm": False,
        "tolerations": [],
        "daemonsetsTolerations": [],
        "priorityClassName": "",
        "namespaceLabelSelector": {},
        "podLabelSelector": {},
        "nodePoolLabelKey": "",
        "jsonLog": False,
        "vpa": {"enabled": False, "updatePolicy": {"updateMode": "InPlaceOrRecreate", "minReplicas": 1}},
        "resourceReservation": {
            **_RESERVATIONS,
            "namespaceLabels": {},
            "createNamespace": True,
            "createServiceAccount": True,
        },
    },
    "operator": {
        "image": _image("operator"),
        "replicaCount": 1,
        "metricsBindAddress": ":8080",
        "probeBindAddress": ":8081",
        "qps": 50,
        "burst": 300,
        "logLevel": "",
    },
    "podgrouper": {
        "enabled": True,
        "image": _image("podgrouper"),
        "queueLabelKey": "kai.scheduler/queue",
        "genericKartaFallback": True,
        "affinity": {},
        "podDisruptionBudget": _BUDGET,
    },
    "podgroupcontroller": {"enabled": True, "image": _image("podgroupcontroller"), "affinity": {}},
    "binder": {
        "enabled": True,
        "name": "binder",
        "image": _image("binder"),
        "resourceReservationImage": _image("resourcereservation"),
        "ports": {"metricsPort": 8080},
        "affinity": {},
        "podDisruptionBudget": _BUDGET,
        "plugins": {},
    },
    "scheduler": {
        "enabled": True,
        "image": _image("scheduler"),
        "placementStrategy": "binpack",
        "ports": {"metricsPort": 8080},
        "args": {},
        "goMemLimitRatio": 0.9,
        "plugins": {},
        "actions": {},
        "scenarioSearchBudgets": {},
        "podDisruptionBudget": _BUDGET,
    },
    "defaultShard": {"enabled": True},
    "numaPlacementExporter": {
        "image": _image("numa-placement-exporter"),
        "nodeSelector": {},
        "tolerations": [],
        "affinity": {},
        "resources": {},
    },
    "queuecontroller": {"enabled": True, "image": _image("queuecontroller"), "affinity": {}},
    "admission": {
        "enabled": True,
        "name": "kai-admission",
        "image": _image("admission"),
        "ports": {"webhookPort": 9443, "metricsPort": 8080, "probePort": 8081},
        "cdi": False,
        "gpuFractionRuntimeClassName": "nvidia",
        "affinity": {},
        "podDisruptionBudget": _BUDGET,
    },
    "nodescaleadjuster": {
        "image": _image("nodescaleadjuster"),
        "scalingPodImage": _image("scalingpod"),
        "scalingPodNamespace": "kai-scale-adjust",
        "affinity": {},
        "labels": {},
    },
    "crdupgrader": {"image": _image("crd-upgrader"), "resources": {}},
    "kaiConfig": {"render": False},
    "kaiConfigDeployer": {"enabled": True, "image": _image("crd-upgrader"), "resources": {}},
    "topologyMigration": {"enabled": True, "image": _image("crd-upgrader"), "resources": {}},
    "postCleanup": {
        "enabled": True,
        "image": _image("crd-upgrader"),
        "serviceAccountName": "post-delete-cleanup",
        "resources": {},
    },
    "defaultPriorityClasses": {"enabled": True},
    "prometheus": {"enabled": False},
    "defaultQueue": _QUEUES,
}

V0_9: Final[Values] = {
    "global": {
        "registry": "registry/local/kai-scheduler",
        "tag": "",
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {},
        "imagePullSecrets": [],
        "leaderElection": False,
        "gpuSharing": False,
        "clusterAutoscaling": False,
        "nodeSelector": {},
        "affinity": {},
        "requireDefaultPodAntiAffinityTerm": False,
        "tolerations": [],
        "namespaceLabelSelector": {},
        "podLabelSelector": {},
        "resourceReservation": _RESERVATIONS,
    },
    "operator": {"image": _image("operator"), "replicaCount": 1, "qps": 50, "burst": 300},
    "podgrouper": {"image": _image("podgrouper"), "queueLabelKey": "kai.scheduler/queue", "affinity": {}},
    "podgroupcontroller": {"image": _image("podgroupcontroller"), "affinity": {}},
    "binder": {
        "name": "binder",
        "image": _image("binder"),
        "resourceReservationImage": {"name": "resourcereservation"},
        "ports": {"metricsPort": 8080},
        "affinity": {},
    },
    "scheduler": {
        "image": _image("scheduler"),
        "placementStrategy": "binpack",
        "actions": [],
        "ports": {"metricsPort": 8080},
    },
    "queuecontroller": {"image": _image("queuecontroller"), "certSecretName": "q", "affinity": {}},
    "admission": {
        "name": "kai-admission",
        "image": _image("admission"),
        "certSecretName": "admission-webhook-tls-secret",
        "ports": {"webhookPort": 9443, "metricsPort": 8080, "probePort": 8081},
        "cdi": False,
        "gpuPodRuntimeClassName": "nvidia",
        "affinity": {},
    },
    "nodescaleadjuster": {
        "image": _image("nodescaleadjuster"),
        "scalingPodImage": _image("scalingpod"),
        "scalingPodNamespace": "kai-scale-adjust",
        "affinity": {},
    },
    "crdupgrader": {"image": _image("crd-upgrader")},
    "topologyMigration": {"enabled": True, "image": _image("crd-upgrader")},
    "postCleanup": {"enabled": True, "image": _image("crd-upgrader"), "serviceAccountName": "post-delete-cleanup"},
    "defaultQueue": _QUEUES,
}
