"""Records of any shape, as a pod may bring one along: more than any dialect makes, and all that can be read."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st

from gpu import record
from gpu.dialects import aliyun, hami, koordinator, metagpu, nvfractions, volcano, volcano_share
from gpu.request import (
    Ask,
    ContainerKind,
    ContainerRef,
    ContainerRequest,
    FractionAsk,
    GpuRequest,
    MemoryAsk,
    MigAsk,
    WholeAsk,
)
from gpu.share import NANO_PER_DEVICE
from gpu.translation import Translation, Wishes

#: Dialects of which a Binding writes something, and others.
DIALECTS = (
    *(each.NAME for each in (aliyun, metagpu, nvfractions, hami, volcano, volcano_share, koordinator)),
    "kai",
    "clearml",
    "replicas",
    "unknown",
)

_SEATS = st.sampled_from(["", "", "a", "b"])
_PERCENT = st.integers(0, 100)
_ASKS: st.SearchStrategy[Ask] = st.one_of(
    st.builds(
        FractionAsk,
        st.integers(1, NANO_PER_DEVICE) | st.just(NANO_PER_DEVICE),
        seat=_SEATS,
        compute_percent=_PERCENT,
        limit_nano=st.integers(0, NANO_PER_DEVICE),
        profile=st.sampled_from(["", "", "1g.5gb"]),
    ),
    st.builds(
        MemoryAsk, st.integers(1, 2**31 - 1), seat=_SEATS, compute_percent=_PERCENT, limit_mib=st.integers(0, 2**31 - 1)
    ),
    st.just(WholeAsk()),
    st.just(MigAsk("1g.5gb")),
)


@st.composite
def _requests(draw: st.DrawFn) -> GpuRequest:
    places = draw(
        st.lists(
            st.tuples(st.sampled_from(ContainerKind), st.integers(0, 3) | st.integers(0, 9999)), max_size=3, unique=True
        )
    )
    containers = []
    for kind, index in places:
        ref = ContainerRef(kind, index, f"{kind.value}{index}-{'n' * draw(st.sampled_from([0, 20, 58]))}")
        asks = tuple(draw(st.lists(_ASKS, min_size=1, max_size=3))) * draw(st.sampled_from([1, 1, 8, 80]))
        sidecar = kind is ContainerKind.INIT and draw(st.booleans())
        containers.append(ContainerRequest(ref, asks, sidecar))
    return GpuRequest(tuple(containers))


@st.composite
def recorded(draw: st.DrawFn) -> Translation:
    """Draw what is read of a record: what can't be read is left out."""
    translation = Translation(
        dialect=draw(st.sampled_from(DIALECTS)),
        request=draw(_requests()),
        alternatives=tuple(draw(st.lists(_requests(), max_size=1))),
        wishes=draw(st.sampled_from([Wishes(), Wishes(mode="hami-core", memory_cap=True)])),
        unit=draw(st.sampled_from([0, 0, 1, 3, 1000, 2**31 - 1])),
    )
    for attempt in (translation, msgspec.structs.replace(translation, alternatives=())):
        read = record.read(record.render(attempt))
        if isinstance(read, Translation):
            return read
    return msgspec.structs.replace(translation, request=GpuRequest(), alternatives=())
