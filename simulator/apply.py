"""Creates the objects of manifests in their order, as ``kubectl apply`` does, with the pods that Jobs make.

The pods of a Job that follow its first ones: one is made for each pod of the Job that succeeds.

Of what Kubernetes' Job controller does, this alone: a pod that failed is not replaced, and no status is written.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import anyio

from kube.client import errors
from kube.client.api import Api
from kube.client.resources import JOBS, NAMESPACES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS
from simulator.controllers import jobs
from simulator.controllers.storage import Storage, of_pod
from simulator.manifests import Manifest, storage_of
from wire import names

_log: Final = logging.getLogger(__name__)


class Successors:
    """Makes the later pods of all Jobs until it is stopped."""

    def __init__(self, api: Api) -> None:
        self._api = api
        #: UID of a Job -> its pods that are not made yet.
        self._left: dict[str, deque[Manifest]] = {}
        self._due: deque[tuple[str, Manifest]] = deque()
        #: UIDs of the pods that were followed by another one.
        self._followed: set[str] = set()
        self._news = anyio.Event()
        self.storage = Storage()

    def hold(self, job_uid: str, pods: Iterable[Manifest]) -> None:
        """Take the later pods of a Job that was just created."""
        self._left[job_uid] = deque(pods)

    def seen(self, pod: Mapping[str, Any]) -> None:
        """Take a version of a pod."""
        meta = pod["metadata"]
        if not self._left or (pod.get("status") or {}).get("phase") != names.SUCCEEDED or meta["uid"] in self._followed:
            return
        for owner in meta.get("ownerReferences") or ():
            left = self._left.get(owner["uid"])
            if left:
                self._followed.add(meta["uid"])
                self._due.append((owner["uid"], left.popleft()))
                self._news.set()

    def stop(self) -> None:
        """Make no more pods."""
        self._left.clear()
        self._due.clear()

    async def run(self) -> None:
        """Make pods as they fall due."""
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            while self._due:
                job_uid, manifest = self._due.popleft()
                body = jobs.owned(manifest.body, job_uid)
                try:
                    await create_pod(self._api, body, manifest.namespace, self.storage)
                except errors.ApiError as error:
                    _log.warning("%s is not made: %s", manifest, error)


async def create_pod(api: Api, body: Mapping[str, Any], namespace: str, storage: Storage) -> None:
    """Create a pod, and the claims of its generic ephemeral volumes. Raises kube.client.errors.ApiError."""
    meta = (await api.create(PODS, body, namespace=namespace)).metadata
    for claim in of_pod(body, meta.name, meta.uid):
        volume, bound = storage.bound(claim, namespace) or (None, claim)
        if volume is not None:
            await api.create(PERSISTENT_VOLUMES, volume)
        await api.create(PERSISTENT_VOLUME_CLAIMS, bound, namespace=namespace)


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
                await create_pod(self._api, body, manifest.namespace, self._successors.storage)
                return
            made = await self._api.create(manifest.resource, body, namespace=manifest.namespace)
            if manifest.resource is JOBS:
                job = manifest.namespace, made.metadata.name
                uids[job] = made.metadata.uid
                self._successors.hold(made.metadata.uid, later.get(job, ()))
        except errors.AlreadyExists:
            if manifest.resource is not NAMESPACES:
                raise
            meta = manifest.body["metadata"]
            added = {field: meta[field] for field in ("labels", "annotations") if meta.get(field)}
            await self._api.patch(NAMESPACES, meta["name"], {"metadata": added})
