"""What a Moorage on a control plane of this machine (deployment.py) is made of in the API server, as YAML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from admission.manifests import UrlEndpoint, all_manifests
from admission.policies import Identities, policy_manifests
from wire import names

_ROOT: Final = Path(__file__).parent.parent
_FILES: Final = ("wire/crds/yaml/*.yaml", "*/rbac.yaml", "reservation/priorityclass.yaml")
_NAMESPACES: Final = (
    names.SYSTEM_NAMESPACE,
    names.RESERVATION_NAMESPACE,
    names.SCALE_ADJUST_NAMESPACE,
    names.NODE_NAMESPACE,
)


def foundation(*, teller: str, leaders: Sequence[str]) -> Iterator[str]:
    """All but the webhooks and policies, in the order in which it is applied.

    ``leaders``: the components that elect one. ``teller``: a service account that tells devices in the place of
    reservation processes; "": there is none.
    """
    runtime = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "nvidia"},
        "handler": "nvidia",
    }
    yield _yaml([*map(_namespace, _NAMESPACES), runtime, *map(lease, leaders), *(_teller(teller) if teller else ())])
    for pattern in _FILES:
        for path in sorted(_ROOT.glob(pattern)):
            yield path.read_text()


def guards(url: str, *, ends_pods: str, teller: str) -> str:
    """Webhooks that are found at ``url``, and policies.

    ``ends_pods``: the service account of Moorage's namespace that ends pods as a kubelet does. ``teller``: as above.
    """
    webhooks = all_manifests(UrlEndpoint(url), ca=b"")
    identities = Identities(
        device_tellers=(_account(names.RESERVATION_NAMESPACE, teller),) if teller else (),
        life_cycle_users=(*Identities().life_cycle_users, _account(names.SYSTEM_NAMESPACE, ends_pods)),
    )
    return _yaml([*webhooks, *policy_manifests(identities)])


def _account(namespace: str, name: str) -> str:
    return f"system:serviceaccount:{namespace}:{name}"


def _namespace(name: str) -> dict[str, Any]:
    """A namespace; that of the reservation pods takes only what Pod Security calls restricted."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"} if name == names.RESERVATION_NAMESPACE else {}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def lease(component: str) -> dict[str, Any]:
    """A lease that says that nobody has led yet: where there is none, the first leader waits for a possible other."""
    metadata = {"name": f"moorage-{component}", "namespace": names.SYSTEM_NAMESPACE}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}


def _teller(name: str) -> list[dict[str, Any]]:
    """A service account for simulated reservation processes, with the role of real ones."""
    metadata = {"name": name, "namespace": names.RESERVATION_NAMESPACE}
    rbac = "rbac.authorization.k8s.io"
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "Role",
            "metadata": metadata,
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "patch"]}],
        },
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", **metadata}],
        },
    ]


def _yaml(documents: Sequence[Mapping[str, Any]]) -> str:
    return yaml.safe_dump_all(documents, sort_keys=False)
