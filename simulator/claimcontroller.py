"""Makes ResourceClaims from templates, and takes pods that are gone out of them, as kube-controller-manager does.

A claim that is made for a pod goes with it. When the last pod leaves ``reservedFor`` the allocation is cleared. For a
PodGroup of Kubernetes' Workload API none is made here, as there is no such kind: those that are there are its pods'.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import msgspec

from kube.client import errors
from kube.client.api import Api
from kube.client.resources import PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from kube.memory.types import ResourceType
from wire import names
from wire.core import Pod
from wire.resource import ResourceClaim

_log: Final = logging.getLogger(__name__)

#: As whom the API server knows it.
USER: Final = "system:serviceaccount:kube-system:resource-claim-controller"
#: Annotation of a claim from a template: what its pods call it.
POD_CLAIM_NAME: Final = "resource.kubernetes.io/pod-claim-name"
_KINDS: Final = frozenset({RESOURCE_CLAIMS.plural, RESOURCE_CLAIM_TEMPLATES.plural})
_LATE_S: Final = 0.2


class ClaimController:
    """``begin`` runs what it is given, with the first claim or template: a world without them has no task for them."""

    def __init__(self, api: Api, begin: Callable[[Callable[[], Coroutine[Any, Any, None]]], None]) -> None:
        self.api = api
        self._begin = begin
        self._is_begun = False
        self.is_off = False
        self._news = anyio.Event()

    def take(self, kind: ResourceType, _raw: bytes, _is_gone: bool) -> None:
        """Take an object as the API server stores it."""
        if kind.plural in _KINDS and not self._is_begun:
            self._is_begun = True
            self._begin(self.run)
        if kind.plural in _KINDS or kind.plural == PODS.plural:
            self._news.set()

    def resume(self) -> None:
        """Work again, and do what was not done meanwhile."""
        self.is_off = False
        self._news.set()

    async def run(self) -> None:
        """Do what is to be done after each change, until cancelled."""
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            await anyio.sleep(_LATE_S)
            if self.is_off:
                continue
            async with self._trying():
                await self._look()

    async def _look(self) -> None:
        pods = {pod.metadata.uid: pod for pod in (await self.api.list(PODS)).items}
        claiming = [pod for pod in pods.values() if pod.spec.resource_claims and not _is_done(pod)]
        of_groups = await self._of_groups() if any(pod.spec.scheduling_group for pod in claiming) else {}
        for pod in claiming:
            async with self._trying():
                await self._make(pod, of_groups)
        for claim in (await self.api.list(RESOURCE_CLAIMS)).items:
            async with self._trying():
                await self._clean(claim, pods)

    @asynccontextmanager
    async def _trying(self) -> AsyncIterator[None]:
        """One object that fails does not delay the others. What is not there is looked for again when it comes."""
        try:
            yield
        except errors.NotFound as error:
            _log.warning("a ResourceClaim is not looked after: %s", error)
        except errors.ApiError as error:
            _log.warning("ResourceClaims are looked after again: %s", error)
            self._news.set()

    async def _of_groups(self) -> dict[tuple[str, str, str], str]:
        """Names of claims that were made for PodGroups: by namespace, PodGroup, and what pods call them."""
        return {
            (meta.namespace, owner.name, (meta.annotations or {}).get(POD_CLAIM_NAME, "")): meta.name
            for meta in (claim.metadata for claim in (await self.api.list(RESOURCE_CLAIMS)).items)
            for owner in meta.owner_references or ()
            if owner.controller and owner.kind == "PodGroup"
        }

    async def _make(self, pod: Pod, of_groups: Mapping[tuple[str, str, str], str]) -> None:
        """Make the claims of a pod that come from templates, and write their names into its status.

        ``of_groups``: claims that were made for PodGroups.
        """
        made = {each.name: each for each in pod.status.resource_claim_statuses or ()}
        missing = [
            each
            for each in pod.spec.resource_claims or ()
            if each.resource_claim_template_name and each.name not in made
        ]
        statuses: list[Any] = [*made.values()]
        group = (pod.spec.scheduling_group or {}).get("podGroupName", "")
        for entry in missing:
            if of_group := of_groups.get((pod.metadata.namespace, group, entry.name)):
                statuses.append({"name": entry.name, "resourceClaimName": of_group})
                continue
            namespace, name = pod.metadata.namespace, f"{pod.metadata.name}-{entry.name}-{pod.metadata.uid[-5:]}"
            template = await self.api.get(
                RESOURCE_CLAIM_TEMPLATES, str(entry.resource_claim_template_name), namespace=namespace
            )
            owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": pod.metadata.uid}
            body = {
                "metadata": {"name": name, "ownerReferences": [{**owner, "controller": True}]},
                "spec": msgspec.to_builtins(template.spec.spec),
            }
            with contextlib.suppress(errors.AlreadyExists):
                await self.api.create(RESOURCE_CLAIMS, body, namespace=namespace)
            statuses.append({"name": entry.name, "resourceClaimName": name})
        if missing:
            status = {"status": {"resourceClaimStatuses": msgspec.to_builtins(statuses)}}
            await self.api.patch(
                PODS,
                pod.metadata.name,
                status,
                namespace=pod.metadata.namespace,
                subresource="status",
                uid=pod.metadata.uid,
            )

    async def _clean(self, claim: ResourceClaim, pods: Mapping[str, Pod]) -> None:
        users = claim.status.reserved_for or []
        left = [each for each in users if each.uid in pods and not _is_done(pods[each.uid])]
        if len(left) < len(users):
            status: dict[str, Any] = {"reservedFor": msgspec.to_builtins(left) or None}
            if not left:
                status["allocation"] = None
            claim = await self._patch(claim, {"status": status}, subresource="status")
        finalizers, is_leaving = claim.metadata.finalizers or [], claim.metadata.deletion_timestamp is not None
        if is_leaving and not left and claim.status.allocation is not None:
            claim = await self._patch(claim, {"status": {"allocation": None}}, subresource="status")
        if not left and names.CLAIM_FINALIZER in finalizers and (is_leaving or users):
            kept = [each for each in finalizers if each != names.CLAIM_FINALIZER]
            claim = await self._patch(claim, {"metadata": {"finalizers": kept or None}})
        owner = next((each.uid for each in claim.metadata.owner_references or () if each.kind == "Pod"), "")
        if owner and not left and (owner not in pods or _is_done(pods[owner])):
            await self._delete(claim)

    async def _delete(self, claim: ResourceClaim) -> None:
        if claim.metadata.deletion_timestamp is None:
            await self.api.delete(
                RESOURCE_CLAIMS, claim.metadata.name, namespace=claim.metadata.namespace, uid=claim.metadata.uid
            )
        elif claim.metadata.finalizers:
            await self._patch(claim, {"metadata": {"finalizers": None}})

    async def _patch(self, claim: ResourceClaim, body: dict[str, Any], *, subresource: str = "") -> ResourceClaim:
        meta = claim.metadata
        at = {"uid": meta.uid, "resource_version": meta.resource_version}
        return await self.api.patch(
            RESOURCE_CLAIMS, meta.name, body, namespace=meta.namespace, subresource=subresource, **at
        )


def _is_done(pod: Pod) -> bool:
    """Whether no container of a pod runs, or ever will."""
    is_unbound = pod.metadata.deletion_timestamp is not None and not pod.spec.node_name
    return is_unbound or pod.status.phase in {names.SUCCEEDED, names.FAILED}
