"""GPUs and MIG slices for tests."""

from __future__ import annotations

from nodeagent.core.devices import Card, Slice


def uuid(number: int, kind: str = "GPU") -> str:
    return f"{kind}-{number:08x}-0000-0000-0000-000000000000"


def card(index: int, *, mem_mib: int | None = 81_559, numa: int | None = None, has_mig: bool = False) -> Card:
    return Card(uuid=uuid(index), index=index, minor=index, mem_mib=mem_mib, numa=numa, has_mig=has_mig)


def part(card_index: int, place: int, profile: str, *, mem_mib: int = 9_984) -> Slice:
    name = uuid(card_index * 16 + place, "MIG")
    return Slice(
        uuid=name,
        card=uuid(card_index),
        profile=profile,
        place=place,
        mem_mib=mem_mib,
        gpu_instance=place + 1,
        compute_instance=0,
    )
