"""Shares of a device: memory and fractions in whole nanos, room for annotations, and parts that a claim gives."""

from __future__ import annotations

from typing import Any, Literal, get_args

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpu import bound_pod
from gpu.bound_pod import ClaimedShare, claimed_metadata, read_claimed
from gpu.device_plugin import MOST_DEVICES
from gpu.grant import DeviceGrant, Grant, shared_metadata
from gpu.limits import PREFIXES
from gpu.request import (
    NO_GPU,
    ContainerKind,
    ContainerRef,
    ContainerRequest,
    FractionAsk,
    GpuRequest,
    MemoryAsk,
    charge_nano,
)
from gpu.share import (
    LARGEST_FLOORED_MIB,
    MOST_TENANTS,
    NANO_PER_DEVICE,
    memory_from_nano,
    mib_of_fraction,
    nano_from_memory,
    portion_text,
)
from gpu.translate.asked import asked
from gpu.translation import Translation
from tests.values import of_kind, there
from wire import names
from wire.core import Pod

#: Of all sizes; with those around the largest on which a charge is rounded down, and two that no power of two divides.
CARDS = st.one_of(
    st.integers(1, 2 * LARGEST_FLOORED_MIB),
    st.sampled_from([LARGEST_FLOORED_MIB - 1, LARGEST_FLOORED_MIB, LARGEST_FLOORED_MIB + 1, 46068, 24576]),
)
FLOORED = CARDS.filter(lambda card_mib: card_mib <= LARGEST_FLOORED_MIB)
#: A tenant's ask: of memory, or a fraction in nano.
Kind = Literal["memory", "fraction"]


def charged(mem_mib: int, card_mib: int) -> int:
    return there(nano_from_memory(mem_mib, card_mib))


def rounded_up(mem_mib: int, card_mib: int) -> int:
    """What versions before this one charged."""
    return -(-mem_mib * NANO_PER_DEVICE // card_mib)


@pytest.mark.parametrize(
    ("mem_mib", "card_mib", "nano"),
    [
        pytest.param(40960, 81920, 500_000_000, id="a half"),
        pytest.param(1, 3, 333_333_333, id="a third"),
        pytest.param(8192, 24576, 333_333_333, id="a third of a real card"),
        pytest.param(2000, 46068, 43_414_083, id="what no decimal says"),
        pytest.param(81920, 81920, NANO_PER_DEVICE, id="all of it"),
        pytest.param(1, LARGEST_FLOORED_MIB, MOST_TENANTS, id="the least that is rounded down"),
        pytest.param(1, LARGEST_FLOORED_MIB + 1, MOST_TENANTS + 1, id="a card so large that it is rounded up"),
        pytest.param(1, 1_000_000_000, 1, id="a nano a MiB"),
        pytest.param(1, 2**40, 1, id="never nothing"),
        pytest.param(81921, 81920, None, id="more than the card"),
        pytest.param(1, 0, None, id="a card that is not known"),
        pytest.param(2**64 - 1, 81920, None, id="the largest number"),
    ],
)
def test_memory_costs_its_part_of_the_card(mem_mib: int, card_mib: int, nano: int | None) -> None:
    assert nano_from_memory(mem_mib, card_mib) == nano


def test_as_many_shares_of_memory_fit_as_the_card_holds_and_not_one_more() -> None:
    assert NANO_PER_DEVICE // charged(2000, 46068) == 23 == 46068 // 2000


@given(FLOORED, st.data())
def test_memory_that_adds_up_to_the_card_fits_it(card_mib: int, data: st.DataObject) -> None:
    left = card_mib
    parts: list[int] = []
    while left and len(parts) < 20:
        parts.append(data.draw(st.integers(1, left)))
        left -= parts[-1]
    assert sum(charged(part, card_mib) for part in (*parts, left) if part) <= NANO_PER_DEVICE


@given(CARDS, st.lists(st.tuples(st.sampled_from(get_args(Kind)), st.floats(0, 1)), max_size=50), st.booleans())
def test_tenants_that_fit_a_device_are_never_promised_more_than_its_memory(
    card_mib: int, asked: list[tuple[Kind, float]], is_older: bool
) -> None:
    """Memory and fractions mixed, each entered while there is room; some may be charged as older versions did."""
    free_nano, total_mib = NANO_PER_DEVICE, 0
    for number, (kind, part) in enumerate(asked):
        if kind == "fraction":
            nano = max(1, int(part * free_nano))
            mem_mib = mib_of_fraction(nano, card_mib)
        else:
            # Up to one MiB more than there is room for, which is where a wrong charge would let it in.
            mem_mib = min(card_mib, max(1, int(part * memory_from_nano(free_nano, card_mib)) + 1))
            charge = rounded_up if is_older and number % 2 else charged
            nano = charge(mem_mib, card_mib)
        if nano <= free_nano:
            free_nano -= nano
            total_mib += mem_mib
    assert total_mib <= card_mib


@given(FLOORED, st.integers(1, MOST_TENANTS), st.booleans())
@example(LARGEST_FLOORED_MIB, MOST_TENANTS, False)
@example(LARGEST_FLOORED_MIB, MOST_TENANTS, True)
def test_as_many_tenants_as_a_book_may_have_are_never_promised_more_than_the_memory(
    card_mib: int, tenants: int, is_mixed: bool
) -> None:
    """About the worst that there is: together they fill the card, and each pays nearly a nano less than its part.

    What they leave goes to one more, in memory or as a fraction.
    """
    least = max(1, card_mib // tenants)
    mem_mib = max(range(least, min(card_mib, least + 200) + 1), key=lambda mib: mib * NANO_PER_DEVICE % card_mib)
    nano = charged(mem_mib, card_mib)
    fitting = min(tenants - 1, NANO_PER_DEVICE // nano)
    left_nano = NANO_PER_DEVICE - fitting * nano
    last_mib = mib_of_fraction(left_nano, card_mib) if is_mixed else memory_from_nano(left_nano, card_mib)
    assert fitting * mem_mib + last_mib <= card_mib


def test_the_bound_is_needed() -> None:
    """One tenant more on a card as much larger, and the sum of what is short would reach a MiB."""
    assert MOST_TENANTS * LARGEST_FLOORED_MIB <= NANO_PER_DEVICE < (MOST_TENANTS + 1) * LARGEST_FLOORED_MIB


@given(CARDS, st.integers(0, NANO_PER_DEVICE))
def test_what_is_free_says_which_memory_ask_is_the_largest_that_fits(card_mib: int, free_nano: int) -> None:
    mem_mib = memory_from_nano(free_nano, card_mib)
    assert mem_mib == 0 or charged(mem_mib, card_mib) <= free_nano
    assert mem_mib == card_mib or charged(mem_mib + 1, card_mib) > free_nano


@given(CARDS, st.data())
def test_a_charge_of_memory_gives_that_memory_back_whichever_way_it_was_rounded(
    card_mib: int, data: st.DataObject
) -> None:
    mem_mib = data.draw(st.integers(1, card_mib))
    for charge in (charged, rounded_up):
        assert memory_from_nano(charge(mem_mib, card_mib), card_mib) == mem_mib


@given(CARDS, st.integers(0, NANO_PER_DEVICE))
def test_a_fraction_stands_for_no_more_memory_than_is_in_it(card_mib: int, nano: int) -> None:
    mem_mib = mib_of_fraction(nano, card_mib)
    assert mem_mib * NANO_PER_DEVICE <= nano * card_mib < (mem_mib + 1) * NANO_PER_DEVICE


def test_two_halves_of_an_odd_card_do_not_pass_it() -> None:
    half = NANO_PER_DEVICE // 2
    assert mib_of_fraction(half, 46069) == memory_from_nano(half, 46069) == 23034


def test_of_a_card_that_is_not_known_no_charge_pays_for_any_memory() -> None:
    assert memory_from_nano(NANO_PER_DEVICE, 0) == mib_of_fraction(NANO_PER_DEVICE, 0) == 0


@pytest.mark.parametrize(
    ("nano", "text"),
    [
        (0, "0.00"),
        (1, "0.00"),
        (4_999_999, "0.00"),
        (5_000_000, "0.01"),
        (10_000_000, "0.01"),
        (500_000_000, "0.50"),
        (333_000_000, "0.33"),
        (999_999_999, "1.00"),
        (NANO_PER_DEVICE, "1.00"),
    ],
)
def test_a_portion_is_written_with_two_decimals(nano: int, text: str) -> None:
    assert portion_text(nano) == text


@given(st.integers(0, 100))
def test_a_portion_of_two_decimals_is_written_as_go_prints_it(cents: int) -> None:
    assert portion_text(cents * 10_000_000) == f"{cents / 100:.2f}"


@given(st.integers(0, NANO_PER_DEVICE))
def test_a_portion_is_off_by_at_most_half_a_cent(nano: int) -> None:
    whole, cents = portion_text(nano).split(".")
    assert abs((int(whole) * 100 + int(cents)) * 10_000_000 - nano) <= 5_000_000


@pytest.mark.parametrize(
    ("mem_mib", "card_mib", "text"),
    [(2000, 15109, "0.14"), (2000, 81920, "0.03"), (1, 81920, "0.01"), (8192, 81920, "0.10"), (81920, 81920, "1.00")],
)
def test_a_portion_that_memory_comes_to_is_rounded_up_as_kai_counts_it(mem_mib: int, card_mib: int, text: str) -> None:
    nano = there(nano_from_memory(mem_mib, card_mib))
    assert portion_text(nano, of_memory=True) == text


@pytest.mark.parametrize(
    ("ask", "card_mib", "nano"),
    [
        (FractionAsk(250_000_000), 0, 250_000_000),
        (FractionAsk(NANO_PER_DEVICE), 81920, NANO_PER_DEVICE),
        (FractionAsk(NANO_PER_DEVICE + 1), 81920, None),
        (MemoryAsk(1024), 4096, 250_000_000),
        (MemoryAsk(1024), 0, None),
        (MemoryAsk(4097), 4096, None),
    ],
)
def test_an_ask_is_charged_for_the_card_that_it_gets(
    ask: FractionAsk | MemoryAsk, card_mib: int, nano: int | None
) -> None:
    assert charge_nano(ask, card_mib) == nano


def _request(devices: int) -> GpuRequest:
    asks = (FractionAsk(NANO_PER_DEVICE),) * devices
    return GpuRequest((ContainerRequest(ContainerRef(ContainerKind.INIT, 99), asks),))


def _asking(request: GpuRequest) -> Translation:
    return Translation(dialect="kai", request=request)


@pytest.mark.parametrize(
    ("devices", "size", "fits"),
    [
        (0, 262_144 - 4096, True),
        (0, 262_144 - 4095, False),
        (2, 262_144 - 4096 - 832, True),
        (2, 262_144 - 4096 - 831, False),
    ],
)
@pytest.mark.parametrize("letter", ["x", "ü", "🚢"])
def test_annotations_have_room_up_to_a_number_of_bytes(devices: int, size: int, fits: bool, letter: str) -> None:
    width = len(letter.encode())
    text = letter * ((size - 1) // width)
    annotations = {"k": text + "x" * (size - 1 - len(text.encode()))}
    refusal = bound_pod.cramped(annotations, _asking(_request(devices)))
    assert (refusal is None) is fits
    if refusal is not None:
        assert refusal.value == f"{size} bytes"


def test_no_annotations_have_room() -> None:
    assert bound_pod.cramped(None, _asking(NO_GPU)) is None


@pytest.mark.parametrize("cdi", [False, True])
@pytest.mark.parametrize("devices", [1, 2, MOST_DEVICES])
def test_what_a_binding_and_a_fence_write_fits_into_the_room_that_is_kept(devices: int, cdi: bool) -> None:
    given = tuple(
        DeviceGrant(group="g" * 36, reservation="r" * 36, uuid="u" * 80, nano=NANO_PER_DEVICE) for _ in range(devices)
    )
    request = _request(devices)
    also = [prefix + "p" * 36 for prefix in PREFIXES]
    written = shared_metadata(Grant("a" * 36, given), request, cdi=cdi, beside=also).annotations
    fence = {names.FENCED: "a" * 36, names.FENCED_BECAUSE: "🚢" * 512}
    bytes_written = sum(len(key.encode()) + len(value.encode()) for key, value in (written | fence).items())
    most = {"": "x" * (bound_pod.LARGEST - bytes_written)}
    assert bound_pod.cramped(most | {"k": "v"}, _asking(request)) is not None
    assert bound_pod.bytes_used(written | fence) == 0


# The part of a device that a claim gives: written on a pod, and read back beside a status that names the claim.

_SHARE = ClaimedShare(driver="gpu.example.com", pool="a", device="d0", nano=250_000_000, mem_mib=81920, uuid="GPU-0")
_TEXT = msgspec.json.encode(_SHARE).decode()


def _pod(annotations: dict[str, str], *, resource: str = names.GPU_SHARE_RESOURCE) -> Pod:
    mapping = {"containerName": "main", "resourceName": resource, "requestName": "share"}
    made: dict[str, Any] = {
        "metadata": {"name": "p", "annotations": annotations},
        "spec": {"containers": [{"name": "main"}]},
        "status": {"extendedResourceClaimStatus": {"resourceClaimName": "c", "requestMappings": [mapping]}},
    }
    return msgspec.convert(made, Pod)


def _asked(**annotations: str) -> Translation:
    return of_kind(Translation, asked(_pod({key.replace("_", "-"): value for key, value in annotations.items()})))


def test_what_is_written_reads_back_beside_the_status_that_names_the_claim() -> None:
    written = claimed_metadata(_SHARE, _asked(gpu_fraction="0.25"), node="a", at_ns=0)
    assert read_claimed(_pod(written)) == _SHARE


@pytest.mark.parametrize(
    ("asks", "portion"), [({"gpu_fraction": "0.25"}, "0.25"), ({"gpu_memory": "20500"}, "0.26")], ids=["part", "memory"]
)
def test_containers_read_their_portion_and_no_device_of_the_runtime(asks: dict[str, str], portion: str) -> None:
    nano = 250_244_140 if "gpu_memory" in asks else _SHARE.nano
    written = claimed_metadata(msgspec.structs.replace(_SHARE, nano=nano), _asked(**asks), node="a", at_ns=0)
    assert written[names.VISIBLE_DEVICES_PREFIX + "c0"] == "void"
    assert written[names.GPU_PORTION_ANNOTATION] == portion


@pytest.mark.parametrize(
    "found",
    [
        _pod({}),
        _pod({names.CLAIMED_SHARE: "{"}),
        _pod({names.CLAIMED_SHARE: _TEXT.replace("250000000", "0")}),
        _pod({names.CLAIMED_SHARE: _TEXT.replace("250000000", "1000000001")}),
        _pod({names.CLAIMED_SHARE: _TEXT.replace("81920", "0")}),
        _pod({names.CLAIMED_SHARE: _TEXT}, resource=names.GPU_RESOURCE),
    ],
    ids=["none", "torn", "nothing", "more than a device", "no memory", "the claim is for whole GPUs"],
)
def test_a_pod_without_a_claim_for_its_share_or_with_a_wrong_text_has_none(found: Pod) -> None:
    assert read_claimed(found) is None
