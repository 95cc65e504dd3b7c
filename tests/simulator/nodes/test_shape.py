from __future__ import annotations

import pytest

from simulator.nodes import shape


@pytest.mark.parametrize(
    ("texts", "cards"),
    [
        (["1x8x80GiB"], [(81920,) * 8]),
        (["2x1x46068MiB"], [(46068,), (46068,)]),
        (["1x2x24GiB+1x80GiB"], [(24576, 24576, 81920)]),
        (["2x0"], [(), ()]),
        (["1x1x1Ti", "1x0"], [(1048576,), ()]),
        (["1x1x24G", "1x1x24GB"], [(22888,), (22888,)]),
    ],
)
def test_nodes_are_read(texts: list[str], cards: list[tuple[int, ...]]) -> None:
    nodes = shape.parse(texts)
    assert [node.cards_mib for node in nodes] == cards
    assert [node.name for node in nodes] == [f"node-{i}" for i in range(len(cards))]


@pytest.mark.parametrize(
    ("text", "cards", "slices"),
    [
        ("1x7x1g.10gb", (), ("1g.10gb",) * 7),
        ("1x2x80GiB+2x1g.10gb+1x3g.40gb", (81920, 81920), ("1g.10gb", "1g.10gb", "3g.40gb")),
    ],
)
def test_slices_are_told_by_their_profile(text: str, cards: tuple[int, ...], slices: tuple[str, ...]) -> None:
    (node,) = shape.parse([text])
    assert (node.cards_mib, node.slices) == (cards, slices)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not a number of nodes"),
        ("8", "not a number of nodes"),
        ("0x8x80GiB", "no nodes"),
        ("1x8", "'8' is not a number of GPUs"),
        ("1x8x80", "'8x80' is not a number of GPUs"),
        ("1x8x80KiB", "'8x80KiB' is not a number of GPUs"),
        ("1x7x9g.10gb", "'7x9g.10gb' is not a number of GPUs"),
        ("1x0x1g.10gb", "'0x1g.10gb' is not a number of GPUs"),
        ("1x60x1g.10gb+5x1GiB", "more than 64 GPUs"),
        ("1x8x0GiB", "is not between 1 MiB"),
        ("1x8x80GiB+", "'' is not a number of GPUs"),
        ("1x65x1GiB", "more than 64 GPUs"),
        ("100001x0", "more than 100000 nodes"),
        ("1000000x8x80GiB", "more than 100000 nodes"),
        ("1x1x99999999999999999999TiB", "quantity"),
        ("-1x8x80GiB", "not a number of nodes"),
    ],
)
def test_what_is_no_shape_is_refused_by_name(text: str, why: str) -> None:
    with pytest.raises(shape.MalformedShape) as caught:
        shape.parse([text])
    assert str(caught.value).startswith(f"nodes {text!r}: ")
    assert why in str(caught.value)
    assert "4x8x80GiB" in str(caught.value)
