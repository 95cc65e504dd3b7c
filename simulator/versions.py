"""Older API versions: manifests of them are read as the current version of their kind.

Today's clusters refuse most of them. Facts: Kubernetes' deprecated API migration guide; releases of Kubeflow's
operators, JobSet, Argo Workflows and Volcano. Of ``resource.k8s.io/v1beta1``: KEP-4381, KEP-4816.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from simulator.controllers.pods import child

Json = Mapping[str, Any]

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
OTHER_FORM: Final = frozenset({f"resource.k8s.io/{version}" for version in ("v1alpha2", "v1alpha3")})
_CLAIMS: Final = "resource.k8s.io/v1"
_BETA: Final = "resource.k8s.io/v1beta1"
#: Of a request in a claim: what is not about the devices that it asks for.
_BESIDE: Final = frozenset({"name", "firstAvailable", "exactly"})


def current(document: Json) -> Json:
    """Return an object in the current version of its kind; the same object where it has that, or another form."""
    api_version, kind = str(document.get("apiVersion")), str(document.get("kind"))
    if api_version == _BETA and kind in _CONVERTED:
        return {**_CONVERTED[kind](document), "apiVersion": _CLAIMS}
    version = _CURRENT.get((api_version, kind))
    return document if version is None else {**document, "apiVersion": version}


def _claim(obj: Json) -> Json:
    """A ResourceClaim: what a request asks for stands below ``exactly`` now."""
    spec = child(obj, "spec")
    requests = child(child(spec, "devices"), "requests")
    if not isinstance(requests, list):
        return obj
    return {**obj, "spec": {**spec, "devices": {**spec["devices"], "requests": [_request(each) for each in requests]}}}


def _request(request: Any) -> Any:
    asked = {key: value for key, value in request.items() if key not in _BESIDE} if isinstance(request, Mapping) else {}
    if not asked:
        return request
    return {**{key: value for key, value in request.items() if key in _BESIDE}, "exactly": asked}


def _template(obj: Json) -> Json:
    spec = child(obj, "spec")
    return {**obj, "spec": {**spec, **_claim({"spec": child(spec, "spec")})}} if isinstance(spec, Mapping) else obj


def _slice(obj: Json) -> Json:
    """A ResourceSlice: what a device has stood below ``basic`` then."""
    spec, devices = child(obj, "spec"), child(child(obj, "spec"), "devices")
    if not isinstance(devices, list):
        return obj
    return {**obj, "spec": {**spec, "devices": [_device(each) for each in devices]}}


def _device(device: Any) -> Any:
    basic = child(device, "basic")
    if not isinstance(basic, Mapping):
        return device
    return {**{key: value for key, value in device.items() if key != "basic"}, **basic}


_CONVERTED: Final[Mapping[str, Callable[[Json], Json]]] = {
    "ResourceClaim": _claim,
    "ResourceClaimTemplate": _template,
    "ResourceSlice": _slice,
    "DeviceClass": lambda obj: obj,
}
