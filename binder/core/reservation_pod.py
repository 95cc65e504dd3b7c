"""Objects that the binder creates in KAI's shape: the reservation pod with its book, and ConfigMaps of bound pods."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import msgspec

from gpu import container_devices as cdi_names
from gpu import reservation as reservations
from gpu.book import Book
from gpu.container_devices import capabilities_name, direct_env_name
from gpu.grant import Grant, dealt, portion
from gpu.node_resources import is_device_resource
from gpu.request import GpuRequest
from gpu.reservation import name_for
from wire import names
from wire.core import ConfigMap
from wire.tombstones import is_older


class ReservationTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """What an administrator may set about reservation pods.

    ``runtime_class`` "" sets none. ``resources``: further requests (= limits) as quantities; a GPU in there is
    dropped. ``priority_class`` "" sets none.
    """

    namespace: str = names.RESERVATION_NAMESPACE
    service_account: str = names.RESERVATION_SERVICE_ACCOUNT
    app: str = names.RESERVATION_APP
    image: str = "localhost/moorage/reservation:latest"
    runtime_class: str = ""
    priority_class: str = ""
    resources: Mapping[str, str] = {}


_FIELD_ENV = {
    names.ENV_POD_NAME: "metadata.name",
    names.ENV_POD_NAMESPACE: "metadata.namespace",
    names.ENV_POD_UID: "metadata.uid",
}


#: All taints, for ever: who may join later, and how long he may stay, nobody knows yet, and it must not go before him.
_TOLERATIONS = [{"operator": "Exists"}]


def manifest(
    template: ReservationTemplate,
    *,
    node: str,
    group: str,
    book: Book,
    resource: str = names.GPU_RESOURCE,
    opened_for: str = "",
    memory_reserve: str = "",
) -> dict[str, Any]:
    """Return the object to create. ``resource``: of which kind the device is (gpu/node_resources.py).

    ``opened_for``: which devices its first tenant names, "" for any. ``memory_reserve``: what its node says
    (gpu/node_resources.py); of a slice nothing is reserved.

    A reservation pod (kai-contract 1.6) names its node directly, so no scheduler is involved, and asks for one whole
    device, or one MIG slice, so the vendor's device plugin gives that device to nobody else. The book has its first
    tenants from the first moment. It is allowed where Pod Security is "restricted".
    """
    own = {name: amount for name, amount in template.resources.items() if not is_device_resource(name)}
    amounts = {**own, resource: "1"}
    container = {
        "name": names.RESERVATION_CONTAINER,
        "image": template.image,
        "imagePullPolicy": "IfNotPresent",
        "resources": {"requests": amounts, "limits": amounts},
        "env": [{"name": key, "valueFrom": {"fieldRef": {"fieldPath": path}}} for key, path in _FIELD_ENV.items()],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "runAsNonRoot": True,
            "runAsUser": 10000,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    spec: dict[str, Any] = {
        "nodeName": node,
        "serviceAccountName": template.service_account,
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 5,
        "tolerations": _TOLERATIONS,
        "containers": [container],
    }
    if template.runtime_class:
        spec["runtimeClassName"] = template.runtime_class
    if template.priority_class:
        spec["priorityClassName"] = template.priority_class
    metadata = _metadata(template, node, group, book)
    if opened_for:
        metadata["annotations"][names.OPENED_FOR] = opened_for
    if memory_reserve and resource == names.GPU_RESOURCE:
        metadata["annotations"][names.GPU_MEMORY_RESERVE] = memory_reserve
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _metadata(template: ReservationTemplate, node: str, group: str, book: Book) -> dict[str, Any]:
    return {
        "name": name_for(node, group),
        "namespace": template.namespace,
        "labels": {names.APP_LABEL: template.app, names.GPU_GROUP_LABEL: group},
        "annotations": reservations.annotations_of(book),
        "finalizers": [names.BOOK_FINALIZER],
    }


class Authorship(enum.Enum):
    """What a ConfigMap that is there already means to an attempt."""

    #: It says what the attempt would say, and nobody may change it.
    OURS = "ours"
    #: It was written for a pod that is another's.
    FOREIGN = "foreign"
    #: Its attempt can't bind any more: it may be replaced.
    OLDER = "older"
    #: Another attempt may bind the pod, or has bound it, with what it says.
    RIVAL = "rival"
    #: The pod has changed since, and is on its way by a newer attempt.
    NEWER = "newer"


def authorship(there: ConfigMap, wanted: Mapping[str, Any]) -> Authorship:
    """Judge a ConfigMap of the same name. One without a version was written by KAI, before us.

    Several attempts may want to write the same ConfigMap, and the container must see what the one that binds has
    written. So each says at which version of the pod it binds: who binds at a newer one may replace it, for the older
    can't bind any more; who binds at the same or an older one may not, for the writer may be bound already.
    """
    metadata = wanted["metadata"]
    owners = [owner.uid for owner in there.metadata.owner_references or ()]
    if owners != [owner["uid"] for owner in metadata["ownerReferences"]]:
        return Authorship.FOREIGN
    written = (there.metadata.annotations or {}).get(names.POD_VERSION, "")
    ours = metadata["annotations"][names.POD_VERSION]
    if written == ours:
        is_same = (there.data or {}) == wanted["data"] and bool(there.immutable)
        return Authorship.OURS if is_same else Authorship.RIVAL
    return Authorship.NEWER if is_older(ours, written) else Authorship.OLDER


def manifests(
    *, prefix: str, pod_name: str, pod_uid: str, rv: str, grant: Grant, request: GpuRequest, cdi: bool = False
) -> list[dict[str, Any]]:
    """Return the ConfigMaps to create, two per container that asked for shares. ``rv``: what the Binding will name.

    ``cdi``: devices are named as CDI does. If that changes between two tries at one version, the second meets a rival
    (see above): it is withdrawn, which changes the pod, and the attempt after it replaces what the first one wrote.

    The two ConfigMaps (kai-contract 1.5) are for pods whose env reads them. They are created once with their final
    content and immutable: nobody can move a container to another device by editing one (contract 9.2.2), and there is
    no half-written state to read back through a cache (9.3.20).
    """
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod_name, "uid": pod_uid}
    metadata = {"annotations": {names.POD_VERSION: rv}, "ownerReferences": [owner]}
    built = []
    shared, places = request.shared, request.devices()
    for container, devices in dealt(grant, request):
        told = portion(devices[0], shared[places[container][0]])
        data = {
            names.ENV_VISIBLE_DEVICES: cdi_names.listed((device.uuid for device in devices), cdi=cdi),
            names.ENV_NUM_OF_GPUS: told,
            names.ENV_GPU_PORTION: told,
        }
        name = capabilities_name(prefix, container)
        built.append(_config_map({"name": name, **metadata}, data))
        built.append(_config_map({"name": direct_env_name(name), **metadata}, {}))
    return built


def _config_map(metadata: Mapping[str, Any], data: Mapping[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data, "immutable": True}
