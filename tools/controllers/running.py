"""Controllers of other projects on a control plane of this machine, each a process under its own service account.

``with Running(plane, JOBSET):`` is ready when the API server asks its webhooks, if it has some. Its certificate is made
here; where it insists on a certificate authority of its own, by that one.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import yaml
from cryptography.utils import CryptographyDeprecationWarning
from trustme import CA
from typing_extensions import override

from tools.certificates import serving_pair
from tools.cluster.plane import ControlPlane
from tools.controllers.catalogue import Controller, Place
from tools.controllers.program import Built, ensure
from tools.flags import LOOPBACK
from tools.ports import free_port
from tools.processes import Programs, wait_until

Json = dict[str, Any]

_READY_WITHIN_S: Final = 120.0
_TOKEN_LIFETIME_S: Final = 36_000
_OK: Final = 200
#: Where an authority is in a Secret of open-policy-agent/cert-controller.
_CA_CERTIFICATE: Final = "ca.crt"
_CA_KEY: Final = "ca.key"
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
    """What of a controller's manifests is applied; its webhooks listen at ``url`` (``https://127.0.0.1:9443``).

    Definitions, accounts and roles stay as they are. Webhooks are asked at a URL in place of a Service. What runs it in
    a cluster (Deployment, Services, Secrets, its configuration) is left out.
    """

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


class Running(Programs):
    """One controller that runs. ``built``: its program and manifests, by default those of program.py."""

    def __init__(self, plane: ControlPlane, controller: Controller, built: Built | None = None) -> None:
        self._plane = plane
        self._controller = controller
        self._built = built or ensure(controller)
        super().__init__(TemporaryDirectory(prefix=f"{controller.name}-", dir=plane.folder))
        self._place = Place(self.folder, free_port(), controller.health_port or free_port())

    @override
    def _start(self) -> None:
        installation = self._installation(CA())
        self._plane.apply(installation.foundation())
        if self._controller.secret:
            self._make_secret(installation)
        self._family.start(self._controller.name, self._command(installation))
        if self._controller.secret:
            installation = self._installation(self._their_authority(installation))
        self._wait_until(self._is_ready, "to be ready")
        if self._controller.refused is not None:
            self._plane.apply(installation.webhooks())
            self._wait_until(self._is_asked, "the API server to ask its webhooks")

    def _installation(self, authority: CA) -> Installation:
        """Return its manifests for webhooks with a certificate of an authority, and write that certificate."""
        self._place.certificates.mkdir(parents=True, exist_ok=True)
        pair = serving_pair(authority, LOOPBACK)
        (self._place.certificates / "tls.key").write_bytes(pair.key_pem)
        (self._place.certificates / "tls.crt").write_bytes(pair.public_pem)
        return Installation(
            self._built.manifests.read_text(),
            url=f"https://{LOOPBACK}:{self._place.webhook_port}",
            ca_pem=authority.cert_pem.bytes().decode(),
        )

    def _make_secret(self, installation: Installation) -> None:
        """Make the empty Secret that it fills with a certificate authority, and the file for which it waits then."""
        namespace, _ = installation.account()
        metadata = {"namespace": namespace, "name": self._controller.secret}
        self._plane.apply(json.dumps({"apiVersion": "v1", "kind": "Secret", "metadata": metadata}))
        if self._controller.awaited:
            awaited = Path(self._controller.awaited)
            awaited.parent.mkdir(parents=True, exist_ok=True)
            awaited.touch()

    def _their_authority(self, installation: Installation) -> CA:
        namespace, _ = installation.account()
        path = f"/api/v1/namespaces/{namespace}/secrets/{self._controller.secret}"
        found: dict[str, str] = {}

        def is_filled() -> bool:
            found.update(self._plane.rest().call("GET", path).get("data", {}))
            return {_CA_CERTIFICATE, _CA_KEY} <= found.keys()

        self._wait_until(is_filled, "its certificate authority")
        with warnings.catch_warnings():
            # Its serial number is zero.
            warnings.simplefilter("ignore", CryptographyDeprecationWarning)
            return CA.from_pem(base64.b64decode(found[_CA_CERTIFICATE]), base64.b64decode(found[_CA_KEY]))

    def _command(self, installation: Installation) -> Sequence[str]:
        token = self._plane.service_account_token(*installation.account(), lifetime_s=_TOKEN_LIFETIME_S)
        kubeconfig = self._plane.write_kubeconfig(self.folder / "kubeconfig", token)
        environment = (f"KUBECONFIG={kubeconfig}", f"TMPDIR={self.folder}")
        command = ["env", *environment, str(self._built.program), *self._controller.flags(self._place)]
        if self._controller.configuration is None:
            return command
        configuration = self.folder / "configuration.yaml"
        configuration.write_text(json.dumps(self._controller.configuration(self._place)))
        return [*command, f"--config={configuration}"]

    def _is_ready(self) -> bool:
        connection = http.client.HTTPConnection(LOOPBACK, self._place.health_port, timeout=5)
        with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("GET", self._controller.readiness)
            return connection.getresponse().status == _OK
        return False

    def _is_asked(self) -> bool:
        refused = self._controller.refused
        assert refused is not None
        of = refused.kind
        trial = {"apiVersion": of.api_version, "kind": of.name, "metadata": {"name": "trial"}, **refused.fields}
        scope = "namespaces/default/" if refused.is_namespaced else ""
        path = f"/apis/{of.api_version}/{scope}{of.plural}?dryRun=All"
        _, said = self._plane.rest().send("POST", path, json.dumps(trial).encode())
        return b"denied the request" in said

    def _wait_until(self, holds: Callable[[], bool], what: str) -> None:
        wait_until(holds, self._family, f"{self._controller.name}: {what}", within_s=_READY_WITHIN_S)
