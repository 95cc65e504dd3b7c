"""What a migration is judged by, as it was read."""

from __future__ import annotations

import msgspec

from cli.checks.reader import Raw
from wire.core import Node, Pod
from wire.crds.bindrequest import BindRequest
from wire.crds.podgroup import PodGroup
from wire.crds.queue import Queue


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """``pods``: those of KAI's scheduler and reservations, ended ones left out. ``nodes``: by name.

    ``at_work`` and ``elsewhere``: a KAI that runs (cli/livekai.py). ``webhooks``: kind and name of its registrations.
    ``lenient_webhooks``: of those, the ones that let all through while KAI does not answer (``failurePolicy: Ignore``).
    ``unread``: what could not be looked at, and why.
    """

    at_work: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()
    deployments: tuple[Raw, ...] = ()
    webhooks: tuple[str, ...] = ()
    lenient_webhooks: frozenset[str] = frozenset()
    reservation_namespace: Raw = {}
    configs: tuple[Raw, ...] = ()
    shards: tuple[Raw, ...] = ()
    queues: tuple[Queue, ...] = ()
    groups: tuple[PodGroup, ...] = ()
    requests: tuple[BindRequest, ...] = ()
    pods: tuple[Pod, ...] = ()
    nodes: dict[str, Node] = {}
    unread: tuple[tuple[str, str], ...] = ()
