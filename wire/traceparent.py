"""Which trace a pod's spans belong to, and their ids: from its annotation (W3C Trace Context), or from its UID.

Every process finds the same trace and the same ids without asking another one, so nothing of a trace is lost with a
process. A pod's spans hang on one, ``pod``. Its id tells whose the trace is: where admission began it, it is what the
annotation names, and made from the trace id; any other annotation names a span of the user's, which the trace goes on
from. Nobody decides anything by a trace: a forged annotation makes a picture that is wrong, and no more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Final

import msgspec

from wire import names

#: As a whole number of billionths: all traces.
ALL: Final = 1_000_000_000
#: Of the ids of traces that we begin.
RANDOM_BITS: Final = 80
_MILLISECOND_NS: Final = 1_000_000
_SPAN_IDS: Final = 2**64
#: version "-" trace id "-" parent id "-" flags; versions to come may go on after a further dash (section 3.2.4).
_FORM: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)
_LONGEST: Final = 512
_INVALID_VERSION: Final = "ff"
_SAMPLED: Final = 0x01


class TraceContext(msgspec.Struct, frozen=True, gc=False):
    """What an annotation says: a trace (128 bits), a span in it (64 bits), and whether that is kept."""

    trace_id: int
    span_id: int
    is_sampled: bool = True

    @property
    def is_own(self) -> bool:
        """Whether we began this trace: then the span is that of the pod."""
        return self.span_id == _first_span(self.trace_id)


class PodTrace(msgspec.Struct, frozen=True, gc=False):
    """Where a pod's spans belong: into this trace, below the span ``pod``. ``parent_id`` is that one's, 0 for none."""

    trace_id: int
    pod_span_id: int
    parent_id: int = 0


def parse(text: str) -> TraceContext | None:
    """Read a traceparent; None for what is none."""
    found = _FORM.fullmatch(text) if len(text) <= _LONGEST else None
    if found is None:
        return None
    version, trace, span, flags, rest = found.groups()
    context = TraceContext(int(trace, 16), int(span, 16), bool(int(flags, 16) & _SAMPLED))
    is_known = version != _INVALID_VERSION and not (version == "00" and rest)
    return context if is_known and context.trace_id and context.span_id else None


def render(context: TraceContext) -> str:
    """Write a traceparent of version 00."""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.is_sampled):02x}"


def new_id(began_ns: int, random_bits: int) -> int:
    """Return the id of a trace of ours: when it began, to the millisecond, and 80 random bits.

    That time is nowhere else: ``creationTimestamp`` has whole seconds. Who samples by an id looks at its end.
    """
    return began_ns // _MILLISECOND_NS % 2**48 << RANDOM_BITS | random_bits % 2**RANDOM_BITS or 1


def began_ns(trace_id: int) -> int:
    """Return when a trace of ours began, in whole milliseconds; of any other trace anything."""
    return (trace_id >> RANDOM_BITS) * _MILLISECOND_NS


def begun(trace_id: int, *, ratio_nano: int) -> TraceContext:
    """Begin a trace of ours."""
    return TraceContext(trace_id, _first_span(trace_id), is_kept(trace_id, ratio_nano))


def is_kept(trace_id: int, ratio_nano: int) -> bool:
    """Whether a trace is among the part that is kept: by its id alone, so that all processes say the same."""
    return trace_id % _SPAN_IDS < ratio_nano * _SPAN_IDS // ALL


def of_pod(annotations: Mapping[str, str] | None, uid: str, *, ratio_nano: int) -> PodTrace | None:
    """Return the trace of a pod; None where it is not kept: by our ratio, or by the decision of its first span.

    A pod without a readable annotation (admission was away, or did not trace yet) has a trace by its UID.
    """
    text = (annotations or {}).get(names.TRACEPARENT, "")
    context = parse(text) if text else None
    trace_id = _digest(uid, 16) if context is None else context.trace_id
    # Most are not: that is looked at first, and cheap.
    if not is_kept(trace_id, ratio_nano) or (context is not None and not context.is_sampled):
        return None
    if context is None or context.is_own:
        return PodTrace(trace_id, _first_span(trace_id))
    return PodTrace(trace_id, span_id(trace_id, "pod", uid), context.span_id)


def span_id(trace_id: int, *about: str) -> int:
    """Return the id of a span that is the only one about these things in its trace."""
    return _digest(f"{trace_id:032x}/{'/'.join(about)}", 8)


def _first_span(trace_id: int) -> int:
    return span_id(trace_id, "")


def _digest(text: str, size: int) -> int:
    """As many bytes, never all 0: such ids are none."""
    return int.from_bytes(blake2b(text.encode(), digest_size=size).digest()) or 1
