"""What pods of all systems are charged on cards of several sizes: never more than a card, by whoever counts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction
from typing import Final

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gpu import book as device_book
from gpu import record
from gpu.book import EMPTY, Book, Entry, Tenant
from gpu.dialects.settings import DialectSettings
from gpu.request import FractionAsk, GpuRequest, SharedAsk, charge_nano
from gpu.share import NANO_PER_DEVICE
from gpu.translate import combine
from gpu.translation import Translation
from simulator.checks.shares import Part, Placed, excess
from simulator.nodes.device_manager import Device
from tests.gpu.dialects.everyrow import every_row
from verification.hostile import workload
from verification.hostile.actions import MAIN, CreatePod
from wire.core import Pod

#: A T4, whose memory is no round number; cards of 24, 40 and 80 GiB; and one whose size nothing divides.
_CARDS_MIB: Final = (15_109, 24_576, 40_960, 81_920, 46_068)


#: Pods of the translation table that ask for parts of devices, each as its settings read it.
_OF_TABLE: Final = [
    found
    for case in every_row()
    if isinstance(found := combine.translate(case.pod, case.settings), Translation) and found.request.is_shared
]


def _drawn(seed: int) -> Translation:
    """A pod in random words of a random system."""
    rng = random.Random(seed)
    limits, labels, annotations = rng.choice(workload.FORMS)(rng, rng.choice(_CARDS_MIB))
    pod = CreatePod(
        at_s=0.0,
        name="p",
        containers=(MAIN, "aside"),
        init_containers=("first",),
        limits={name: dict(limits) for name in rng.choice(((MAIN,), (MAIN, "aside"), ("first", MAIN)))},
        labels=dict(labels),
        annotations=dict(annotations),
    )
    found = combine.translate(msgspec.convert(pod.manifest, Pod), DialectSettings())
    assert isinstance(found, Translation), found
    return found


#: Rows by number: their list is nothing to print where a test fails.
_PODS: Final = st.one_of(
    st.integers(0, len(_OF_TABLE) - 1).map(lambda row: _OF_TABLE[row]), st.integers(0, 10**6).map(_drawn)
)


@given(st.lists(st.tuples(_PODS, st.booleans()), min_size=1, max_size=40), st.randoms(use_true_random=False))
def test_whatever_pods_come_and_go_no_card_is_charged_beyond_itself(
    coming: list[tuple[Translation, bool]], rng: random.Random
) -> None:
    """Each takes the first way that fits, or none; some go again. What they have is counted as the checker does."""
    cards = {f"GPU-{n}": Device(n, f"GPU-{n}", mem_mib) for n, mem_mib in enumerate(_CARDS_MIB * 2)}
    books = dict.fromkeys(cards, EMPTY)
    there: dict[str, Placed] = {}
    for number, (translation, ends) in enumerate(coming):
        uid = f"u{number}"
        for request in (translation.request, *translation.alternatives):
            taken = _taken(uid, translation, request, books, cards, rng)
            if taken is not None:
                books |= taken
                there[uid] = Placed(_parts(request, list(taken)), cards)
                break
        for uuid, book in books.items():
            shares = [placed.share(uuid) for placed in there.values() if uuid in placed.parts]
            card_mib = cards[uuid].mem_mib
            assert excess(shares, card_mib) == ""
            assert sum(share.least_nano(card_mib) for share in shares) <= book.total_nano <= NANO_PER_DEVICE
        if ends and there:
            gone = rng.choice(sorted(there))
            leaving = there.pop(gone)
            for uuid in leaving.parts:
                entry = books[uuid].entries[gone]
                books[uuid] = device_book.leave(books[uuid], [Tenant(gone, entry)])


def _taken(
    uid: str,
    translation: Translation,
    request: GpuRequest,
    books: dict[str, Book],
    cards: dict[str, Device],
    rng: random.Random,
) -> dict[str, Book] | None:
    """Devices for all of ``request.shared``, in its order, with what their books are then; None if some don't fit."""
    taken: dict[str, Book] = {}
    for ask in request.shared:
        for uuid in rng.sample(sorted(set(books) - set(taken)), len(books) - len(taken)):
            nano = charge_nano(ask, cards[uuid].mem_mib)
            if nano is None:
                continue
            entry = Entry(nano=nano, attempt="a", rv="1", since=1, pod=f"team/{uid}", mode=translation.wishes.mode)
            joined = device_book.join(books[uuid], [Tenant(uid, entry)])
            if isinstance(joined, Book):
                taken[uuid] = joined
                break
        else:
            return None
    return taken


def _parts(request: GpuRequest, devices: Sequence[str]) -> dict[str, tuple[Part, ...]]:
    """Each container's asks on their devices: seats in the order in which they are first named."""
    seats: dict[str, str] = {}
    parts: dict[str, tuple[Part, ...]] = {}
    left = iter(devices)
    for asking in request.containers:
        ref = asking.container
        for number, ask in enumerate(asking.asks):
            if isinstance(ask, SharedAsk):
                seat = ask.seat or f"{ref.key}/{number}"
                uuid = seats.get(seat) or seats.setdefault(seat, next(left))
                fraction = Fraction(ask.nano, NANO_PER_DEVICE) if isinstance(ask, FractionAsk) else Fraction(0)
                mem_mib = 0 if isinstance(ask, FractionAsk) else ask.mem_mib
                part = Part(ref.key, ref.name, seat, fraction, mem_mib, asking.is_sidecar)
                parts[uuid] = (*parts.get(uuid, ()), part)
    return parts


@given(_PODS)
def test_what_is_charged_is_the_same_behind_the_record(translation: Translation) -> None:
    """The scheduler never sees the words: it charges what the record says."""
    again = record.read(record.render(translation))
    assert isinstance(again, Translation)
    for before, after in zip(
        (translation.request, *translation.alternatives), (again.request, *again.alternatives), strict=True
    ):
        for card_mib in _CARDS_MIB:
            assert [charge_nano(ask, card_mib) for ask in before.shared] == [
                charge_nano(ask, card_mib) for ask in after.shared
            ]
