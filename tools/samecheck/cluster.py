"""The other side: a real control plane with Moorage's components and simulated nodes, through all manifests of a run.

Kubernetes' own controllers run there. What no program of it does is done here, as on any cluster with storage: claims
are bound whose class has a provisioner, and a class is the default one. Everything of a manifest is removed before the
next one.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

import yaml

from simulator import installation
from simulator.world import is_settled
from tools.cluster.deployment import GROUPING, NODES, Deployment, Options
from tools.cluster.plane import ControlPlane
from tools.rest import RestError
from tools.samecheck.comparing import Json, Side, side
from tools.samecheck.simulated import STRATEGY
from wire import names

#: As ``moorage simulate`` names its nodes.
_PREFIX: Final = "node"
_POLL_S: Final = 0.3
#: Nothing changes for this time: at rest; where a workload lacks pods or the sides differ. The longest wait.
_QUIET_S: Final = 3.0
_STUCK_S: Final = 15.0
_MOST_S: Final = 180.0
_DEFAULT_CLASS: Final = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "standard", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
    "provisioner": "samecheck.example.com",
}
_BACKGROUND: Final = b'{"propagationPolicy": "Background"}'
_PODS, _GROUPS = "/api/v1/pods", f"/apis/{names.SCHEDULING_GROUP}/v2alpha2/podgroups"
_CLAIMS, _VOLUMES = "/api/v1/persistentvolumeclaims", "/api/v1/persistentvolumes"
_CLASSES: Final = "/apis/storage.k8s.io/v1/storageclasses"


def _has_replicas(maker: Json) -> bool:
    status, wanted = maker["status"], int(maker["spec"]["replicas"])
    return _is_observed(maker) and status.get("replicas", 0) == wanted


def _is_observed(maker: Json) -> bool:
    return bool(maker["status"].get("observedGeneration", 0) >= maker["metadata"]["generation"])


#: Where makers of pods are listed, and whether one has made them.
_MAKERS: Final[Mapping[str, Callable[[Json], bool]]] = {
    "/apis/apps/v1/deployments": _has_replicas,
    "/apis/apps/v1/replicasets": _has_replicas,
    "/apis/apps/v1/statefulsets": _has_replicas,
    "/apis/apps/v1/daemonsets": _is_observed,
    "/apis/batch/v1/jobs": lambda it: "ready" in it["status"] or bool(it["spec"].get("suspend")),
}
#: Namespaces that are there before all manifests.
_KEPT: Final = frozenset({
    "default", "kube-system", "kube-public", "kube-node-lease", names.SYSTEM_NAMESPACE, names.RESERVATION_NAMESPACE,
    names.SCALE_ADJUST_NAMESPACE, names.NODE_NAMESPACE,
})  # fmt: skip


class Cluster:
    """``with Cluster(["4x8x80GiB"]) as cluster:``; ``dress``: a merge patch of some nodes, by name."""

    def __init__(self, nodes: Sequence[str], dress: Mapping[str, Json]) -> None:
        self._dress = dress
        self._plane = ControlPlane()
        packed = [f"--gpu-strategy={STRATEGY}", f"--cpu-strategy={STRATEGY}"]
        arguments = {"binder": ["--idle-s", "1"], "scheduler": packed, NODES: ["--prefix", _PREFIX]}
        self._options = Options(arguments=arguments, components=GROUPING, nodes=nodes)
        self._stack = contextlib.ExitStack()
        #: apiVersion and kind -> plural, and whether it has namespaces.
        self._served: dict[tuple[str, str], tuple[str, bool]] = {}
        self._made: list[str] = []

    def __enter__(self) -> Self:
        """Start everything."""
        self._stack.enter_context(self._plane)
        self._moorage = self._stack.enter_context(Deployment(self._plane, self._options))
        self._install()
        self._rest = self._plane.rest()
        self._served = dict(self._discovered())
        for name, patch in self._dress.items():
            self._rest.call("PATCH", f"/api/v1/nodes/{name}", patch)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop everything."""
        self._stack.__exit__(kind, error, trace)

    def serves(self, document: Json) -> bool:
        """Whether the API server knows this kind."""
        return (document.get("apiVersion"), document.get("kind")) in self._served

    def run(
        self, documents: Sequence[Json], accounts: Sequence[tuple[str, str]], *, agrees: Callable[[Side], bool]
    ) -> Side:
        """Create objects, wait until nothing changes, and return what is there then.

        While it does not agree with what was foretold, it is looked at for longer. Raises ProcessDied, TimeoutError.
        """
        refused = [*self._created(documents, accounts)]
        try:
            found = self._at_rest(refused, _QUIET_S)
            return found if agrees(found) else self._at_rest(refused, _STUCK_S)
        finally:
            self._clear()

    def _install(self) -> None:
        self._plane.apply(yaml.safe_dump_all([*installation.priority_classes(), _DEFAULT_CLASS]))

    def _discovered(self) -> Iterator[tuple[tuple[str, str], tuple[str, bool]]]:
        groups = self._rest.call("GET", "/apis")["groups"]
        versions = [version["groupVersion"] for group in groups for version in group["versions"]]
        for version in ("v1", *versions):
            for found in self._rest.call("GET", _root(version))["resources"]:
                if "/" not in found["name"]:
                    yield (version, found["kind"]), (found["name"], found["namespaced"])

    def _created(self, documents: Sequence[Json], accounts: Sequence[tuple[str, str]]) -> Iterator[str]:
        """Create objects in their order; yield why some are refused."""
        named = {str(each["metadata"]["namespace"]) for each in documents if each["metadata"].get("namespace")}
        for namespace in sorted(named | {namespace for namespace, _ in accounts}):
            self._create({"apiVersion": "v1", "kind": "Namespace", **installation.named(namespace)})
        for namespace, name in accounts:
            account = installation.account(name)
            self._create({**account, "metadata": {**account["metadata"], "namespace": namespace}})
        # Without a Queue nothing is limited; beside others the chart's are there (simulator.manifests.installed).
        queues = installation.queues() if any(each["kind"] == "Queue" for each in documents) else []
        for document in (*queues, *documents):
            try:
                self._create(document)
            except RestError as error:
                yield str(error)

    def _create(self, document: Json) -> None:
        """Create an object as ``kubectl apply`` does: one that is there is patched. Raises RestError."""
        meta = document["metadata"]
        plural, has_namespace = self._served[document["apiVersion"], document["kind"]]
        place = f"/namespaces/{meta.get('namespace') or 'default'}" if has_namespace else ""
        path = f"{_root(document['apiVersion'])}{place}/{plural}"
        if has_namespace:
            self._wait_for(lambda: self._has_account(place), "the default service account")
        try:
            made = self._rest.call("POST", path, document)["metadata"]["name"]
        except RestError as error:
            if error.code != 409 or not meta.get("name"):
                raise
            self._rest.call("PATCH", f"{path}/{meta['name']}", document)
            made = meta["name"]
        self._made.append(f"{path}/{made}")

    def _has_account(self, place: str) -> bool:
        return self._rest.send("GET", f"/api/v1{place}/serviceaccounts/default")[0] == 200

    def _at_rest(self, refused: Sequence[str], quiet_s: float) -> Side:
        """Wait until nothing changes for so long; the longest wait ends with what is there."""
        give_up_at = time.monotonic() + _MOST_S
        seen, since = None, time.monotonic()
        while (now := time.monotonic()) < give_up_at:
            self._moorage.check()
            pods, makers = self._items(_PODS), {path: self._items(path) for path in _MAKERS}
            self._provision()
            versions = {
                each["metadata"]["uid"]: each["metadata"]["resourceVersion"]
                for each in (*pods, *self._items(_GROUPS), *self._items(_CLAIMS), *itertools.chain(*makers.values()))
            }
            if versions != seen:
                seen, since = versions, now
            is_whole = all(_MAKERS[path](each) for path, found in makers.items() for each in found)
            if now - since >= (quiet_s if is_whole and all(map(is_settled, pods)) else max(quiet_s, _STUCK_S)):
                break
            time.sleep(_POLL_S)
        return side(self._items(_PODS), self._items(_GROUPS), [*refused, *self._refused_pods()])

    def _refused_pods(self) -> Iterator[str]:
        """Why pods of controllers were refused, of controllers that are there."""
        there = {each["metadata"]["uid"] for path in _MAKERS for each in self._items(path)}
        for event in self._items("/api/v1/events?fieldSelector=reason%3DFailedCreate"):
            if event["involvedObject"].get("uid") in there:
                yield event["message"]

    def _provision(self) -> None:
        """Make volumes for claims whose class has a provisioner: at once, or for the node that was chosen."""
        classes = {each["metadata"]["name"]: each for each in self._items(_CLASSES)}
        for claim in self._items(_CLAIMS):
            meta, spec = claim["metadata"], claim["spec"]
            of = classes.get(spec.get("storageClassName") or "")
            if spec.get("volumeName") or of is None or of["provisioner"] == names.NO_PROVISIONER:
                continue
            node = (meta.get("annotations") or {}).get(names.SELECTED_NODE)
            if of.get("volumeBindingMode") == "WaitForFirstConsumer" and not node:
                continue
            volume = {
                "metadata": {"name": f"pvc-{meta['uid']}"},
                "spec": {
                    "accessModes": spec["accessModes"],
                    "capacity": spec["resources"]["requests"],
                    "storageClassName": spec["storageClassName"],
                    "claimRef": {"namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"]},
                    "hostPath": {"path": "/data"},
                },
            }
            self._rest.send("POST", _VOLUMES, json.dumps(volume).encode())

    def _clear(self) -> None:
        """Remove everything of a manifest, and wait until it is gone."""
        for path in reversed(self._made):
            if path not in {f"/api/v1/namespaces/{name}" for name in _KEPT}:
                self._rest.send("DELETE", path, _BACKGROUND)
        restores = any(kind in path for path in self._made for kind in ("/priorityclasses/", "/storageclasses/"))
        self._made.clear()
        self._wait_for(self._is_clear, "everything to be gone")
        if restores:
            self._install()

    def _is_clear(self) -> bool:
        left = 0
        for kind in (_PODS, _CLAIMS, _GROUPS, "/apis/resource.k8s.io/v1/resourceclaims", *_MAKERS):
            for each in self._items(kind):
                left += 1
                meta = each["metadata"]
                is_deleted = bool(meta.get("deletionTimestamp"))
                if meta["namespace"] != names.RESERVATION_NAMESPACE and not is_deleted:
                    at = kind.rpartition("/")
                    self._rest.send(
                        "DELETE", f"{at[0]}/namespaces/{meta['namespace']}/{at[2]}/{meta['name']}", _BACKGROUND
                    )
        for volume in self._items(_VOLUMES):
            left += 1
            self._rest.send("DELETE", f"{_VOLUMES}/{volume['metadata']['name']}", _BACKGROUND)
        spaces = [each["metadata"] for each in self._items("/api/v1/namespaces")]
        for meta in spaces:
            if meta["name"] not in _KEPT:
                left += 1
                if not meta.get("deletionTimestamp"):
                    self._rest.send("DELETE", f"/api/v1/namespaces/{meta['name']}", _BACKGROUND)
        return not left

    def _items(self, path: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._rest.call("GET", path)["items"]
        return found

    def _wait_for(self, holds: Callable[[], bool], what: str) -> None:
        give_up_at = time.monotonic() + _MOST_S
        while not holds():
            self._moorage.check()
            if time.monotonic() > give_up_at:
                raise TimeoutError(f"waited {_MOST_S:.0f} s for {what}")
            time.sleep(_POLL_S)


def _root(version: str) -> str:
    return f"/apis/{version}" if "/" in version else f"/api/{version}"
