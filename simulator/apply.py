"""Creates the objects of manifests in their order, as ``kubectl apply`` does, and the pods that controllers make later.

One is made for each pod of a Job that succeeds, until the Job has all of its pods, one of a StatefulSet of OrderedReady
once the one before it is ready, and one in place of each pod with a controller that is evicted. A Job fails with more
evicted pods than its ``backoffLimit``. Of what controllers do, these alone: a pod that failed on its own or was deleted
is not replaced, and no status is written.

``submit`` applies to an API server on which nothing else runs, neither nodes nor scheduler: what is stored after
admission, with the claims of templates, as it waits on a cluster before the first decision.
"""

from __future__ import annotations

import contextlib
import logging
import random
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final

import anyio
import msgspec

from admission.settings import Settings as AdmissionSettings
from kube.client import errors
from kube.client.api import Api
from kube.client.clock import Clock
from kube.client.resources import (
    CSI_NODES,
    DEVICE_CLASSES,
    JOBS,
    NAMESPACES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_GROUPS,
    PODS,
    QUEUES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    STORAGE_CLASSES,
    TOPOLOGIES,
    Resource,
)
from kube.client.retry import Retry
from simulator import installation
from simulator.apiserver.server import MemoryApiServer
from simulator.components import start_admission
from simulator.controllers import jobs
from simulator.controllers.kube_controllers import KubeControllers, Storage, of_pod
from simulator.controllers.pods import child, number
from simulator.manifests import Manifest, storage_of
from simulator.replicas import is_ours
from wire import names

_log: Final = logging.getLogger(__name__)


def is_evicted(pod: Mapping[str, Any]) -> bool:
    """Whether a pod has the condition that an eviction sets."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "DisruptionTarget" and each["status"] == "True" for each in conditions)


class Successors:
    """Makes the later pods of all controllers until it is stopped. ``replaces_evicted``: those of evicted pods, too.

    ``makes_in_order``: pods that come after another one wait until it is ready; else they are made with the others.
    ``failed``: by the UID of a Job that failed, why. ``ended``: its pods that went for it, by UID.
    """

    def __init__(self, api: Api, *, replaces_evicted: bool = False, makes_in_order: bool = False) -> None:
        self._api = api
        self.makes_in_order = makes_in_order
        self._replaces_evicted = replaces_evicted
        #: UID of a Job -> its pods that are not made yet.
        self._left: dict[str, deque[Manifest]] = {}
        self._due: deque[Manifest] = deque()
        #: Namespace and name of a pod -> the pod that is made once it is ready.
        self._after: dict[tuple[str, str], Manifest] = {}
        #: UIDs of the pods that were followed by another one.
        self._followed: set[str] = set()
        #: UID of a pod with a controller -> what it was made of; UID of a Job -> the Job.
        self._made: dict[str, Manifest] = {}
        self._jobs: dict[str, Mapping[str, Any]] = {}
        #: Evicted pods that count against ``backoffLimit``, by the UID of their Job, and the index where it counts.
        self._evicted: Counter[tuple[str, str]] = Counter()
        self._failing: deque[str] = deque()
        self.failed: dict[str, str] = {}
        self.ended: dict[str, Mapping[str, Any]] = {}
        self._news = anyio.Event()
        self.storage = Storage()

    def hold(self, job_uid: str, job: Mapping[str, Any], pods: Iterable[Manifest]) -> None:
        """Take a Job that was just created, and its later pods."""
        self._left[job_uid] = deque(pods)
        self._jobs[job_uid] = job

    def hold_back(self, pod: Manifest) -> None:
        """Take a pod that is made once the pod is ready that it comes after."""
        self._after[pod.namespace, pod.after] = pod

    async def make(self, manifest: Manifest) -> None:
        """Create a pod, and the claims of its generic ephemeral volumes. Raises kube.client.errors.ApiError."""
        meta = (await self._api.create(PODS, manifest.body, namespace=manifest.namespace)).metadata
        if self._replaces_evicted and _controller(manifest.body) is not None:
            self._made[meta.uid] = manifest
        for claim in of_pod(manifest.body, meta.name, meta.uid):
            volume, bound = self.storage.bound(claim, manifest.namespace) or (None, claim)
            if volume is not None:
                await self._api.create(PERSISTENT_VOLUMES, volume)
            await self._api.create(PERSISTENT_VOLUME_CLAIMS, bound, namespace=manifest.namespace)

    def seen(self, pod: Mapping[str, Any]) -> None:
        """Take a version of a pod.

        A pod that is terminating is replaced at once, unless the next one has its name, or its Job waits until it has
        ended (KEP-3939).
        """
        meta = pod["metadata"]
        if meta.get("deletionTimestamp") and meta["uid"] in self._made and not self._waits_for_end(meta["uid"]):
            self._replace(pod)
        if self._after and _is_ready(pod):
            following = self._after.pop((meta["namespace"], meta["name"]), None)
            if following is not None:
                self._put(following)
        if not self._left or (pod.get("status") or {}).get("phase") != names.SUCCEEDED or meta["uid"] in self._followed:
            return
        for owner in meta.get("ownerReferences") or ():
            left = self._left.get(owner["uid"])
            if left:
                self._followed.add(meta["uid"])
                self._put(_of_job(left.popleft(), owner["uid"]))

    def gone(self, pod: Mapping[str, Any]) -> None:
        """Take a pod that is gone."""
        owner = _controller(pod)
        if owner is not None and owner["uid"] in self.failed and not is_evicted(pod):
            self.ended[pod["metadata"]["uid"]] = pod
        self._replace(pod)

    def _waits_for_end(self, uid: str) -> bool:
        manifest = self._made[uid]
        spec = child(self._jobs.get((_controller(manifest.body) or {})["uid"]), "spec")
        return bool(
            manifest.body["metadata"].get("name")
            or child(spec, "podFailurePolicy")
            or child(spec, "podReplacementPolicy") == "Failed"
        )

    def _replace(self, pod: Mapping[str, Any]) -> None:
        manifest = self._made.pop(pod["metadata"]["uid"], None)
        if manifest is None or not is_evicted(pod):
            return
        owner = _controller(manifest.body) or {}
        job = self._jobs.get(owner["uid"])
        if job is None or self._goes_on(owner["uid"], job, pod):
            self._put(manifest)

    def _goes_on(self, uid: str, job: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
        """Whether a Job replaces a pod that was evicted; it fails where that is one too many."""
        if uid in self.failed:
            return False
        spec = child(job, "spec")
        action = _action(spec)
        if action == "Ignore":
            return True
        is_by_index = child(spec, "backoffLimitPerIndex") is not None
        field = "backoffLimitPerIndex" if is_by_index else "backoffLimit"
        index = (pod["metadata"].get("annotations") or {}).get(jobs.INDEX, "") if is_by_index else ""
        most = number(spec, field, "spec", _BACKOFF_LIMIT)
        self._evicted[uid, index] += 1
        if action not in {"FailJob", "FailIndex"} and self._evicted[uid, index] <= most:
            return True
        if not index or action == "FailJob":
            why = "spec.podFailurePolicy fails it" if action == "FailJob" else f"spec.{field} is {most}"
            self.failed[uid] = f"Job {job['metadata']['name']} has failed: a pod of it was evicted, and {why}"
            self._left.pop(uid, None)
            self._failing.append(uid)
            self._news.set()
        return False

    def _put(self, manifest: Manifest) -> None:
        self._due.append(manifest)
        self._news.set()

    def stop(self) -> None:
        """Make no more pods."""
        self._left.clear()
        self._due.clear()
        self._made.clear()
        self._after.clear()

    async def run(self) -> None:
        """Make pods as they fall due, and delete those of Jobs that failed."""
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            while self._due:
                manifest = self._due.popleft()
                try:
                    await self.make(manifest)
                except errors.ApiError as error:
                    _log.warning("%s is not made: %s", manifest, error)
            while self._failing:
                await self._delete_pods_of(self._failing.popleft())

    async def _delete_pods_of(self, job_uid: str) -> None:
        for pod in (await self._api.list(PODS)).items:
            meta = pod.metadata
            if any(owner.uid == job_uid for owner in meta.owner_references or ()):
                with contextlib.suppress(errors.NotFound):
                    await self._api.delete(PODS, meta.name, namespace=meta.namespace, uid=meta.uid)


def _is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


#: Kubernetes' default.
_BACKOFF_LIMIT: Final = 6


def _controller(pod: Mapping[str, Any]) -> Mapping[str, Any] | None:
    owners: Sequence[Mapping[str, Any]] = pod["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), None)


def _action(job: object) -> str:
    """What a Job's ``podFailurePolicy`` does about a pod that was evicted; "Count" without a rule for it."""
    for rule in child(child(job, "podFailurePolicy"), "rules") or ():
        if any(child(each, "type") == "DisruptionTarget" for each in child(rule, "onPodConditions") or ()):
            return str(child(rule, "action"))
    return "Count"


def _of_job(pod: Manifest, job_uid: str) -> Manifest:
    return msgspec.structs.replace(pod, body=jobs.owned(pod.body, job_uid))


#: Namespace and name of a Job.
_Job = tuple[str, str]


class Applying:
    """``successors`` gets the pods that a Job makes later."""

    def __init__(self, api: Api, successors: Successors) -> None:
        self._api = api
        self._successors = successors

    async def apply(self, manifests: Iterable[Manifest]) -> None:
        """Create objects in the order given.

        A namespace that is there already gets the labels and annotations of its manifest. Raises
        kube.client.errors.ApiError, with the object named in a note.
        """
        uids: dict[_Job, str] = {}
        manifests = [*manifests]
        self._successors.storage = storage_of(manifests)
        now: list[Manifest] = []
        later: dict[_Job, list[Manifest]] = {}
        for manifest in manifests:
            if manifest.after and self._successors.makes_in_order:
                self._successors.hold_back(manifest)
                continue
            (later.setdefault((manifest.namespace, manifest.job), []) if manifest.is_later else now).append(manifest)
        for manifest in now:
            try:
                await self._create(manifest, uids, later)
            except errors.ApiError as error:
                error.add_note(str(manifest))
                raise

    async def _create(
        self, manifest: Manifest, uids: dict[_Job, str], later: Mapping[_Job, Sequence[Manifest]]
    ) -> None:
        """Create an object. ``uids``: of the Jobs that were created, of which this may be one."""
        body = manifest.body
        if manifest.job:
            body = jobs.owned(body, uids[manifest.namespace, manifest.job])
        try:
            if manifest.resource is PODS:
                await self._successors.make(msgspec.structs.replace(manifest, body=body))
                return
            made = await self._api.create(manifest.resource, body, namespace=manifest.namespace)
            if manifest.resource is JOBS:
                job = manifest.namespace, made.metadata.name
                uids[job] = made.metadata.uid
                self._successors.hold(made.metadata.uid, body, later.get(job, ()))
        except errors.AlreadyExists:
            if manifest.resource is not NAMESPACES:
                raise
            meta = manifest.body["metadata"]
            added = {field: meta[field] for field in ("labels", "annotations") if meta.get(field)}
            await self._api.patch(NAMESPACES, meta["name"], {"metadata": added})


#: Objects that decisions read.
READ: Final[tuple[Resource[Any], ...]] = (
    *(NAMESPACES, QUEUES, TOPOLOGIES, STORAGE_CLASSES, CSI_NODES, PERSISTENT_VOLUMES, PERSISTENT_VOLUME_CLAIMS),
    *(DEVICE_CLASSES, RESOURCE_SLICES, RESOURCE_CLAIMS, POD_GROUPS, JOBS, PODS),
)
#: After so long in virtual time claims are made.
_MADE_S: Final = 10.0

#: New objects by the plural of their kind.
Stored = Mapping[str, Sequence[Any]]


async def submit(
    objects: Sequence[Manifest], *, there: Sequence[Manifest], clock: Clock, admission: AdmissionSettings
) -> Stored | errors.ApiError:
    """Create objects and return what is stored of them, or why one is refused, with the object in a note.

    ``there``: objects that exist before; admission does not see them.
    """

    def rng(purpose: str) -> random.Random:
        return random.Random(f"submitted/{purpose}")

    server = MemoryApiServer(clock=clock, rng=rng("server"), auto_namespaces=True)
    api = Api(server.transport("user"), retry=Retry(rng("user")))
    found: Stored | errors.ApiError = {}
    async with anyio.create_task_group() as group:
        await group.start(server.run)
        try:
            await installation.seed(api)
            await Applying(api, Successors(api)).apply(there)
            before = {plural: {_key(each) for each in found} for plural, found in (await _stored(api)).items()}

            def begin(run: Callable[[], Coroutine[Any, Any, None]]) -> None:
                group.start_soon(run)

            KubeControllers(server, clock=clock, pods=list, rng=rng, begin=begin)
            await start_admission(server, group, settings=admission, checks_queues=True, rng=rng, is_ours=is_ours)
            await Applying(api, Successors(api)).apply(objects)
            await anyio.sleep(_MADE_S)
            after = await _stored(api)
            found = {plural: [each for each in after[plural] if _key(each) not in before[plural]] for plural in after}
        except errors.ApiError as error:
            found = error
        group.cancel_scope.cancel()
    return found


async def _stored(api: Api) -> Stored:
    return {resource.plural: (await api.list(resource)).items for resource in READ}


def _key(obj: Any) -> tuple[str, str]:
    return obj.metadata.namespace, obj.metadata.name
