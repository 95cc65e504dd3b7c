"""Older API versions whose form is the same as the current one: manifests of them are read as the current version.

Today's clusters refuse them. Facts: Kubernetes' deprecated API migration guide; releases of Kubeflow's operators,
JobSet, Argo Workflows and Volcano.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_APPS: Final = ("Deployment", "DaemonSet", "ReplicaSet", "StatefulSet")
#: Older version and kind -> the current version.
_CURRENT: Final[Mapping[tuple[str, str], str]] = {
    **{
        (version, kind): "apps/v1"
        for version in ("extensions/v1beta1", "apps/v1beta1", "apps/v1beta2")
        for kind in _APPS
    },
    **{(version, "CronJob"): "batch/v1" for version in ("batch/v1beta1", "batch/v2alpha1")},
    **{
        (f"scheduling.k8s.io/{version}", "PriorityClass"): "scheduling.k8s.io/v1" for version in ("v1alpha1", "v1beta1")
    },
    **{("storage.k8s.io/v1beta1", kind): "storage.k8s.io/v1" for kind in ("StorageClass", "CSINode")},
    **{
        ("resource.k8s.io/v1beta2", kind): "resource.k8s.io/v1"
        for kind in ("DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice")
    },
    **{(f"kubeflow.org/{version}", "TFJob"): "kubeflow.org/v1" for version in ("v1alpha2", "v1beta1", "v1beta2")},
    **{(f"kubeflow.org/{version}", "PyTorchJob"): "kubeflow.org/v1" for version in ("v1beta1", "v1beta2")},
    ("kubeflow.org/v1alpha2", "MPIJob"): "kubeflow.org/v1",
    ("xgboostjob.kubeflow.org/v1alpha1", "XGBoostJob"): "kubeflow.org/v1",
    ("jobset.x-k8s.io/v1alpha1", "JobSet"): "jobset.x-k8s.io/v1alpha2",
    ("argoproj.io/v1", "Workflow"): "argoproj.io/v1alpha1",
    # kube-batch, from which Volcano came.
    **{
        (f"scheduling.incubator.k8s.io/{version}", "PodGroup"): "scheduling.volcano.sh/v1beta1"
        for version in ("v1alpha1", "v1alpha2")
    },
}

#: Versions of another form, which are passed over: their pods wait for what they make on a cluster.
OTHER_FORM: Final = frozenset({f"resource.k8s.io/{version}" for version in ("v1alpha2", "v1alpha3", "v1beta1")})


def current(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an object in the current version of its kind; the same object where it has that, or another form."""
    version = _CURRENT.get((str(document.get("apiVersion")), str(document.get("kind"))))
    return document if version is None else {**document, "apiVersion": version}
