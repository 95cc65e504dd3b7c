"""The rights of KAI's components, as its release leaves them when its Deployments are at 0."""

from __future__ import annotations

from typing import Any, Final

Object = dict[str, Any]

_ALL: Final = ("create", "delete", "get", "list", "patch", "update", "watch")
_WRITE: Final = ("create", "patch", "update")
_READ: Final = ("get", "list", "watch")
_RBAC: Final = "rbac.authorization.k8s.io"
_NAMESPACE: Final = "kai-scheduler"


def _rule(resources: str, verbs: tuple[str, ...], group: str = "", names: tuple[str, ...] = ()) -> Object:
    named = {"resourceNames": list(names)} if names else {}
    return {"apiGroups": [group], "resources": resources.split(), "verbs": list(verbs), **named}


_WEBHOOKS: Final = "mutatingwebhookconfigurations validatingwebhookconfigurations"
#: Service account -> role and its rules that a second lock is about; what only reads is left out.
ROLES: Final[dict[str, tuple[str, list[Object]]]] = {
    "admission": ("kai-admission", [_rule("configmaps", _ALL), _rule("events", _WRITE)]),
    "binder": (
        "kai-binder",
        [
            _rule("pods configmaps", _ALL),
            _rule("pods/binding pods/finalizers events", _WRITE),
            _rule("pods/status", ("create", "get", "list", "patch", "update", "watch")),
            _rule("bindrequests", ("delete", *_READ, "patch", "update"), "scheduling.run.ai"),
        ],
    ),
    "scheduler": (
        "kai-scheduler",
        [
            _rule("pods", ("delete", *_READ, "patch", "update")),
            _rule("pods/status configmaps events", _ALL),
            _rule("bindrequests", _ALL, "scheduling.run.ai"),
        ],
    ),
    "pod-grouper": ("kai-podgrouper", [_rule("pods events", ("create", *_READ, "patch", "update"))]),
    "podgroup-controller": ("kai-podgroup-controller", [_rule("pods pods/status nodes", _READ)]),
    "queue-controller": ("queuecontroller", [_rule("configmaps", _ALL)]),
    "node-scale-adjuster": (
        "kai-node-scale-adjuster",
        [_rule("pods configmaps", _ALL), _rule("pods/status", ("get", "patch", "update"))],
    ),
    "kai-operator": (
        "kai-operator",
        [
            _rule("configmaps secrets services serviceaccounts pods persistentvolumeclaims endpoints", _ALL),
            _rule("deployments daemonsets", _ALL, "apps"),
            _rule(_WEBHOOKS, ("create", *_READ), "admissionregistration.k8s.io"),
        ],
    ),
}


def objects() -> list[Object]:
    """Accounts' roles and bindings, as they are applied."""
    found = []
    for account, (role, rules) in ROLES.items():
        found += [
            {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": role}, "rules": rules},
            {
                "apiVersion": f"{_RBAC}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": role},
                "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
                "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": _NAMESPACE}],
            },
        ]
    return found
