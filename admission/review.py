"""AdmissionReview v1 in, AdmissionReview v1 out: the webhooks without HTTP.

The server (admission/server.py), the in-memory API server and the simulator all call this very code.
"""

from __future__ import annotations

import base64
import logging
import random
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Final

import msgspec

from admission import handover, raw_pod, validate
from admission.envelope import MalformedReview, Request, Review, diff, parsed, response
from admission.mutate import Mutated, mutated
from admission.raw_pod import Raw
from admission.settings import Choices, Guard, Settings, adopted, may_be_adopted, names_gpus, ours
from admission.tracing import PodTraces
from admission.tracing import Review as Reviewed
from gpu import messages
from gpu.keys import ignored_keys
from gpu.translation import Refusal, told
from kube.telemetry.logevents import LogEvent, about
from wire.core import Pod

_log: Final = logging.getLogger(__name__)

_EPHEMERAL: Final = "ephemeralcontainers"
#: What the API server passes on of one warning, in characters.
_LONGEST_WARNING: Final = 256
#: Keys without effect that one review warns of. A pod may carry thousands.
_MOST_IGNORED: Final = 8
#: Characters of a namespace, a slash and a name, at most, of a pod that the API server takes.
_LONGEST_PLACE: Final = 63 + 1 + 253

#: Says what a namespace chooses for its pods, or why what it says can't be understood.
ChoicesOf = Callable[[str], Choices | Refusal]


class _Mounting(msgspec.Struct, frozen=True, rename="camel"):
    """What admission reads of a container beyond wire.core, so that its type is checked as well."""

    volume_mounts: list[dict[str, Any]] | None = None


class _MountingSpec(msgspec.Struct, frozen=True, rename="camel"):
    containers: list[_Mounting] = []
    init_containers: list[_Mounting] | None = None


class _MountingPod(msgspec.Struct, frozen=True):
    spec: _MountingSpec = _MountingSpec()


class PodAdmission:
    """The webhooks for pods. ``rng`` gives the random part of ConfigMap names."""

    def __init__(
        self,
        settings: Settings,
        *,
        rng: random.Random,
        choices_of: ChoicesOf | None = None,
        traces: PodTraces | None = None,
    ) -> None:
        self.settings = settings
        self._traces = traces
        self._rng = rng
        self._choices_of = choices_of or (lambda _: settings.choices)

    def _now_ns(self) -> int:
        """Wall time; 0 if nothing is traced."""
        return 0 if self._traces is None else self._traces.now_ns()

    def mutating(self, review: Review) -> Review:
        """Answer a review of the mutating webhook: a patch, nothing, or a refusal. Raises MalformedReview."""
        began_ns = self._now_ns()
        request = parsed(review)
        pod = _shaped(request.object, "object")
        if not self._is_ours(pod):
            return _allowed(request)
        if (excess := self._excess(request, pod)) is not None:
            return self._refused(request, _unread("mutate", began_ns, request), told(excess))
        pod = _decodable(pod, "object")
        return self._mutated(request, pod, Reviewed("mutate", began_ns, pod, _place(request)))

    def _mutated(self, request: Request, pod: Raw, reviewed: Reviewed) -> Review:
        choices = self._choices_of(request.namespace)
        if isinstance(choices, Refusal):
            return self._refused(request, reviewed, told(choices))
        if request.sub_resource == _EPHEMERAL:
            known = _ephemeral(_pod(request.old_object, "oldObject"))
            return _patched(request, pod, handover.guarded_ephemeral(pod, known=known, guard=choices.guard))
        if not _is_new(request):
            return _allowed(request)
        after = mutated(pod, choices=choices, settings=self.settings, rng=self._rng)
        if isinstance(after, Refusal):
            return self._refused(request, reviewed, told(after))
        marked = after.pod if self._traces is None else self._traces.marked(reviewed, after.pod)
        answer = _patched(request, pod, marked, warnings=_warnings(pod, after))
        trace = {} if request.dry_run or self._traces is None else self._traces.admitted(reviewed, marked)
        if "patch" in answer["response"]:
            extra = about(LogEvent.POD_ADMITTED, pod=reviewed.place, dry_run=request.dry_run, **trace)
            _log.info("admitted", extra=extra)
        return answer

    def adopting(self, review: Review) -> Review:
        """Answer a review of the webhook that comes first in namespaces that say so. Raises MalformedReview.

        It never refuses: where the namespace itself is not understood, the webhooks that come after it say so.
        """
        request = parsed(review)
        pod = _shaped(request.object, "object")
        if not _is_new(request) or not may_be_adopted(pod, self.settings.origins):
            return _allowed(request)
        choices = self._choices_of(request.namespace)
        known = self.settings.choices if isinstance(choices, Refusal) else choices
        if raw_pod.excess(pod, self.settings.bounds) is not None:
            # Refused by the webhook that comes next, if it is ours then.
            is_ours = names_gpus(pod, known.dialects)
            return _patched(request, pod, ours(pod, self.settings.scheduler_name) if is_ours else pod)
        pod = _decodable(pod, "object")
        after = adopted(pod, dialects=known.dialects, scheduler_name=self.settings.scheduler_name)
        return _patched(request, pod, after)

    def validating(self, review: Review) -> Review:
        """Answer a review of the validating webhook: yes or a refusal. Raises MalformedReview."""
        began_ns = self._now_ns()
        request = parsed(review)
        if request.operation not in {"CREATE", "UPDATE"}:
            return _allowed(request)
        pod = _shaped(request.object, "object")
        if not self._is_ours(pod):
            return _allowed(request)
        if (excess := self._excess(request, pod)) is not None:
            return self._refused(request, _unread("validate", began_ns, request), told(excess))
        pod = _decodable(pod, "object")
        refusal = self._refusal(request, pod)
        if refusal is None:
            return _allowed(request)
        return self._refused(request, Reviewed("validate", began_ns, pod, _place(request)), refusal)

    def _refused(self, request: Request, reviewed: Reviewed, message: str) -> Review:
        is_real = _is_new(request) and not request.dry_run
        trace = self._traces.refused(reviewed) if is_real and self._traces is not None else {}
        extra = about(LogEvent.POD_REFUSED, pod=reviewed.place, dry_run=request.dry_run, **trace)
        _log.info("%s", message, extra=extra)
        status = {"code": 403, "reason": "Forbidden", "message": message}
        return response(request, {"allowed": False, "status": status})

    def _refusal(self, request: Request, pod: Raw) -> str | None:
        is_new = _is_new(request)
        if not is_new and request.sub_resource != _EPHEMERAL:
            sharing = self.settings.choices.dialects.sharing
            return validate.refusal_of_update(_pod(request.old_object, "oldObject"), pod, sharing=sharing)
        choices = self._choices_of(request.namespace)
        if isinstance(choices, Refusal):
            return told(choices)
        if is_new:
            renamed, may_be_critical = (
                self.settings.gpu_resources,
                request.namespace in self.settings.critical_namespaces,
            )
            return validate.refusal_of_new(pod, choices=choices, renamed=renamed, may_be_critical=may_be_critical)
        known = _ephemeral(_pod(request.old_object, "oldObject"))
        return None if choices.guard is Guard.OFF else handover.forbidden_ephemeral(pod, known=known)

    def _excess(self, request: Request, pod: Raw) -> Refusal | None:
        """Why a pod is too large to be read. One that came before there was a bound may be changed, but not grow."""
        excess = raw_pod.excess(pod, self.settings.bounds)
        if excess is None or _is_new(request):
            return excess
        before = _shaped(request.old_object, "oldObject")
        return excess if raw_pod.has_grown(before, pod) else None

    def _is_ours(self, pod: Raw) -> bool:
        return bool(pod["spec"].get("schedulerName") == self.settings.scheduler_name)


def _shaped(raw: Raw | None, field: str) -> Raw:
    """Return the raw pod, with metadata and spec. Nothing else of it is looked at."""
    if raw is None:
        raise MalformedReview(f"request.{field} is missing")
    pod = {**raw, "metadata": raw.get("metadata") or {}, "spec": raw.get("spec") or {}}
    for name in ("metadata", "spec"):
        if not isinstance(pod[name], dict):
            raise MalformedReview(f"request.{field} is not a Pod: {name} is not a map")
    return pod


def _decodable(pod: Raw, field: str) -> Raw:
    """Return the pod once it is known to decode."""
    try:
        if "containers" in pod["spec"] and pod["spec"]["containers"] is None:
            # Go's way to write that there are none; the API server refuses that itself, in better words.
            pod = {**pod, "spec": {**pod["spec"], "containers": []}}
        msgspec.convert(pod, Pod)
        msgspec.convert(pod, _MountingPod)
    except (msgspec.ValidationError, TypeError, RecursionError) as error:
        raise MalformedReview(f"request.{field} is not a Pod: {error}") from error
    return pod


def _pod(raw: Raw | None, field: str) -> Raw:
    """Return the raw pod, with metadata and spec, once it is known to decode."""
    return _decodable(_shaped(raw, field), field)


def _unread(webhook: str, began_ns: int, request: Request) -> Reviewed:
    """A review of a pod that is refused before it is read: of its metadata it has none."""
    return Reviewed(webhook, began_ns, {"metadata": {}, "spec": {}}, _place(request))


def _ephemeral(pod: Raw) -> set[str]:
    return {container.get("name", "") for container in pod["spec"].get("ephemeralContainers") or ()}


def _is_new(request: Request) -> bool:
    return request.operation == "CREATE" and not request.sub_resource


def _allowed(request: Request) -> Review:
    return response(request, {"allowed": True})


def _patched(request: Request, before: Raw, after: Raw, *, warnings: Sequence[str] = ()) -> Review:
    answer: dict[str, Any] = {"allowed": True}
    operations = diff(before, after)
    if operations:
        answer |= {"patchType": "JSONPatch", "patch": base64.b64encode(msgspec.json.encode(operations)).decode()}
    return response(request, {**answer, "warnings": list(warnings)} if warnings else answer)


def _warnings(pod: Raw, made: Mutated) -> list[str]:
    """Warnings that kubectl shows to the pod's creator: texts whose meaning differs from what they suggest."""
    texts = [messages.note_text(note) for note in made.notes]
    texts += [messages.lost_text(made.lost_on)] if made.lost_on else []
    meta = pod["metadata"]
    ignored = islice(ignored_keys(meta.get("labels"), meta.get("annotations")), _MOST_IGNORED)
    texts += [f"{each.key} {each.text}" for each in ignored]
    return [text if len(text) <= _LONGEST_WARNING else f"{text[: _LONGEST_WARNING - 3]}..." for text in texts]


def _place(request: Request) -> str:
    """Of whom a review is. A pod of a controller has no name of its own yet.

    A mutating webhook is asked before the API server looks at names, so one may be of any length.
    """
    metadata = (request.object or {}).get("metadata") or {}
    place = f"{request.namespace}/{metadata.get('name') or metadata.get('generateName') or ''}"
    return place[:_LONGEST_PLACE]
