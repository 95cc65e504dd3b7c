"""AdmissionReview v1 of Queues and PodGroups in, AdmissionReview v1 out."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio

from admission.envelope import MalformedReview, Raw, Request, Review, parsed, response
from admission.objects.findings import Allowed, Finding, Judgement, Refused, read, told, warned
from admission.objects.podgroup import MOST_SUB_GROUPS, judge_group, sub_groups, too_many
from admission.objects.queue import Others, judge_deleted, judge_written
from kube.client.api import Api
from kube.client.errors import ApiError
from kube.client.resources import QUEUES
from kube.telemetry.logevents import LogEvent, about
from wire.crds.podgroup import PodGroup
from wire.crds.queue import Queue

_log: Final = logging.getLogger(__name__)

#: Of the 5 s that the API server waits for a review.
READ_WITHIN_S: Final = 2.0


class KnownQueues:
    """Reads all queues; one list at a time, which serves all reviews that came before it began.

    They are read and not watched: a queue is often created right after its parent, and a watch that lags would warn of
    a parent that exists. Administrators write queues, so reviews are rare; status is written beside the webhook.
    """

    def __init__(self, api: Api, *, within_s: float = READ_WITHIN_S) -> None:
        self._api = api
        self._within_s = within_s
        self._reading = anyio.Lock()
        #: Numbers of the last list that was started, and of the last that ended.
        self._started = self._ended = 0
        self._last: Others | None = None

    async def __call__(self) -> Others | None:
        """Return all queues; None if they can't be read completely within the time."""
        seen = self._started
        async with self._reading:
            if self._ended <= seen:
                self._started = number = self._started + 1
                self._last = await self._read()
                self._ended = number
            return self._last

    async def _read(self) -> Others | None:
        try:
            with anyio.fail_after(self._within_s):
                listing = await self._api.list(QUEUES)
        except (ApiError, TimeoutError) as error:
            _log.warning("the Queues can't be read, so a Queue is reviewed without the others: %s", error)
            return None
        return Others(listing.items)


#: Says all queues; None where they could not be read.
ReadQueues = Callable[[], Awaitable[Others | None]]


_WRITES: Final = frozenset({"CREATE", "UPDATE"})


async def _unread() -> Others | None:
    return None


class ObjectAdmission:
    """The webhooks of Queues and PodGroups."""

    def __init__(self, read_queues: ReadQueues = _unread) -> None:
        self._read_queues = read_queues

    async def knowing_queues(self) -> Callable[[Review], Review]:
        """Read the queues, and return what answers a review of a Queue by them."""
        queues = await self._read_queues()
        return lambda review: self.of_queue(review, queues)

    def of_queue(self, review: Review, queues: Others | None) -> Review:
        """Answer a review of a Queue. ``queues``: all that are stored. Raises MalformedReview."""
        request = parsed(review)
        return _answered(request, "Queue", _judged_queue(request, queues))

    def of_group(self, review: Review) -> Review:
        """Answer a review of a PodGroup. Raises MalformedReview."""
        request = parsed(review)
        return _answered(request, "PodGroup", _judged_group(request))


def _judged_queue(request: Request, queues: Others | None) -> Judgement:
    old = None if request.old_object is None else read(request.old_object, Queue)
    if request.operation == "DELETE":
        return judge_deleted(_sound(old, "oldObject"), others=queues)
    if request.operation not in _WRITES:
        return Allowed()
    queue = read(_written(request), Queue)
    if isinstance(queue, Finding):
        return Refused((queue,))
    # A stored object that can't be read says nothing about what was wrong before.
    before = old if isinstance(old, Queue) else None
    return judge_written(queue, old=before, others=queues)


def _judged_group(request: Request) -> Judgement:
    if request.operation not in _WRITES:
        return Allowed()
    if (number := sub_groups(_written(request))) > MOST_SUB_GROUPS:
        # One that came before the bound may be changed, unread, but not grow.
        is_larger = number > sub_groups(request.old_object or {})
        return Refused((too_many(number),)) if is_larger else Allowed()
    group = read(_written(request), PodGroup)
    if isinstance(group, Finding):
        return Refused((group,))
    old = None if request.old_object is None else read(request.old_object, PodGroup)
    # A PodGroup that can't be read is stored, too, so this is no new group.
    return judge_group(group, old=PodGroup() if isinstance(old, Finding) else old)


def _written(request: Request) -> Raw:
    """The object of a review. Raises MalformedReview if there is none."""
    if request.object is None:
        raise MalformedReview("request.object is missing")
    return request.object


def _sound(found: Queue | Finding | None, field: str) -> Queue:
    """A Queue that is only named. Raises MalformedReview if there is none."""
    if found is None:
        raise MalformedReview(f"request.{field} is missing")
    if isinstance(found, Finding):
        raise MalformedReview(f"request.{field} is not a Queue: {told(found)}")
    return found


def _answered(request: Request, kind: str, judgement: Judgement) -> Review:
    warnings = [warned(each) for each in judgement.warnings]
    noted: dict[str, Any] = {"warnings": warnings} if warnings else {}
    if isinstance(judgement, Allowed):
        return response(request, {"allowed": True, **noted})
    message = "\n".join(map(told, judgement.findings))
    name = f"{request.namespace}/{request.name}" if request.namespace else request.name
    extra = about(LogEvent.OBJECT_REFUSED, kind=kind, name=name, rule=judgement.findings[0].rule.value)
    _log.info("%s", message, extra=extra)
    status = {"code": 403, "reason": "Forbidden", "message": message}
    return response(request, {"allowed": False, "status": status, **noted})
