"""What of a controller's manifests is applied where it runs as a process of this machine.

Definitions, accounts and roles stay as they are. Webhooks are asked at a URL in place of a Service. What runs it in a
cluster (Deployment, Services, Secrets, its configuration) is left out.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import yaml

Json = dict[str, Any]

_KEPT: Final = (
    "Namespace",
    "CustomResourceDefinition",
    "ServiceAccount",
    "Role",
    "ClusterRole",
    "RoleBinding",
    "ClusterRoleBinding",
)
_WEBHOOKS: Final = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
#: libyaml's, ten times as fast.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class Installation:
    """The manifests of one controller whose webhooks listen at ``url`` (``https://127.0.0.1:9443``)."""

    def __init__(self, manifests: str, *, url: str, ca_pem: str) -> None:
        self._url = url
        self._ca = base64.b64encode(ca_pem.encode()).decode()
        self._documents: Sequence[Json] = [each for each in yaml.load_all(manifests, Loader=_Loader) if each]

    def foundation(self) -> str:
        """What has to be there before the controller starts."""
        return self._dumped(_KEPT)

    def webhooks(self) -> str:
        """What has the API server ask it, once it listens."""
        return self._dumped(_WEBHOOKS)

    def account(self) -> tuple[str, str]:
        """Namespace and name of its service account. Raises ValueError if there is not exactly one."""
        (found,) = (each["metadata"] for each in self._documents if each["kind"] == "ServiceAccount")
        return found["namespace"], found["name"]

    def _dumped(self, kinds: Sequence[str]) -> str:
        kept = [self._at_url(each) for each in self._documents if each["kind"] in kinds]
        return str(yaml.dump_all(kept, Dumper=_Dumper, sort_keys=False))

    def _at_url(self, value: Any) -> Any:
        """Return a value with every reference to a Service of webhooks replaced."""
        if isinstance(value, list):
            return [self._at_url(each) for each in value]
        if not isinstance(value, Mapping):
            return value
        return dict(self._fields(value))

    def _fields(self, value: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        for key, inner in value.items():
            if key == "clientConfig" and "service" in inner:
                yield key, {"url": self._url + inner["service"].get("path", ""), "caBundle": self._ca}
            else:
                yield key, self._at_url(inner)
