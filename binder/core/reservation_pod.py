"""The reservation pod as it is created: KAI's shape (kai-contract 1.6), with its book.

It names its node directly, so no scheduler is involved, and asks for one whole device, or one MIG slice, so the
vendor's device plugin gives that device to nobody else. The book has its first tenants from the first moment. It
is allowed where Pod Security is "restricted".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gpu import reservation as reservations
from gpu.book import Book
from gpu.node_resources import is_device_resource
from gpu.reservation import name_for
from wire import names


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
) -> dict[str, Any]:
    """Return the object to create. ``resource``: of which kind the device is (gpu/node_resources.py).

    ``opened_for``: which devices its first tenant names (gpu/pinning.py, hint), "" for any.
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
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _metadata(template: ReservationTemplate, node: str, group: str, book: Book) -> dict[str, Any]:
    return {
        "name": name_for(node, group),
        "namespace": template.namespace,
        "labels": {names.APP_LABEL: template.app, names.GPU_GROUP_LABEL: group},
        "annotations": reservations.annotations_of(book),
        "finalizers": [names.BOOK_FINALIZER],
    }
