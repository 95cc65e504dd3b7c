"""The arrays place exactly as the plain reference does, on small clusters with all that makes ties and edges."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.cluster import Cluster
from scheduler.core.model.plan import Alone
from scheduler.core.model.settings import Settings, Strategy
from tests.scheduler.core.objects import cluster, node, pod, reservation
from tests.scheduler.core.reference import NANO, Card, Choice, Machine, Want, place
from tests.whole import examples
from wire import names

#: Few values, so that ties and exact fits are common.
_FRACTIONS = ["0.5", "0.25", "0.333", "0.1", "0.9", "0.000000001", "0.999999999", "0.3333333333"]
_CARDS = [0, 10000, 15360, 30000]

_USED = st.one_of(st.integers(1, 99).map(lambda cents: cents * NANO // 100), st.sampled_from([0, NANO, 1]))


@st.composite
def machines(draw: st.DrawFn) -> list[Machine]:
    made: list[Machine] = []
    for number in range(draw(st.integers(2, 4))):
        gpus = draw(st.sampled_from([2, 3, 4, 1, 0]))
        smallest, largest = sorted((draw(st.sampled_from(_CARDS)), draw(st.sampled_from(_CARDS))))
        if not smallest:
            largest = 0
        machine = Machine(
            f"n{number}",
            gpus=gpus,
            cpu_milli=draw(st.sampled_from([64000, 64000, 4000, 1000])),
            pods=draw(st.sampled_from([110, 110, 6, 3])),
            smallest_mib=smallest,
            largest_mib=largest,
        )
        for slot in range(draw(st.integers(0, gpus))):
            used = draw(
                st.one_of(st.integers(1, 99).map(lambda cents: cents * NANO // 100), st.sampled_from([0, NANO, 1]))
            )
            known = draw(st.sampled_from([0, smallest, largest]))
            machine.cards.append(Card(f"{machine.name}-{slot}", known, Fraction(used, NANO)))
        machine.used_pods = len(machine.cards)
        made.append(machine)
    return made


@st.composite
def wants(draw: st.DrawFn) -> list[Want]:
    made: list[Want] = []
    for number in range(draw(st.integers(1, 12))):
        name, cpu_milli = f"p{number:02}", draw(st.sampled_from([0, 500, 1000, 3000]))
        match draw(st.sampled_from(["fraction", "fraction", "memory", "whole", "cpu"])):
            case "fraction":
                text = draw(st.sampled_from(_FRACTIONS))
                # The tenth digit rounds up to the next nano, against the asker.
                exact = Fraction(-(-Fraction(text) * NANO // 1), NANO)
                made.append(Want(name, cpu_milli, fraction=exact, devices=draw(st.integers(1, 3))))
            case "memory":
                mem = draw(st.sampled_from([1, 5000, 7680, 10000, 10001, 15360, 30000]))
                made.append(Want(name, cpu_milli, mem_mib=mem, devices=draw(st.integers(1, 2))))
            case "whole":
                made.append(Want(name, cpu_milli, gpus=draw(st.integers(1, 4))))
            case _:
                made.append(Want(name, cpu_milli))
    return made


def _cluster(of: list[Machine], asked: list[Want], chosen: Settings) -> Cluster:
    objects: list[Any] = []
    for machine in of:
        cards = f"{machine.smallest_mib},{machine.largest_mib}"
        annotations = {names.NODE_CARDS: cards} if machine.largest_mib else {}
        cpu = f"{machine.cpu_milli}m"
        objects.append(node(machine.name, machine.gpus, cpu=cpu, pods=machine.pods, annotations=annotations))
        for card in machine.cards:
            book = {f"tenant-{card.group}": int(card.used * NANO)} if card.used else {}
            made = reservation(card.group, machine.name, book=book, uuid=f"GPU-{card.group}", mem_mib=card.mem_mib)
            objects.append(made)
    objects.extend(_pod(want) for want in asked)
    return cluster(*objects, settings=chosen)


def _pod(want: Want) -> Any:
    cpu = f"{want.cpu_milli}m" if want.cpu_milli else ""
    if want.mem_mib:
        return pod(want.name, cpu=cpu, mem=want.mem_mib, devices=want.devices)
    if want.devices:
        nano = int(want.fraction * NANO)
        return pod(want.name, cpu=cpu, fraction=f"0.{nano:09}", devices=want.devices)
    return pod(want.name, cpu=cpu, gpus=want.gpus)


def _placed(made: Cluster) -> dict[str, Choice]:
    found: dict[str, Choice] = {}
    for entry in made.decide(0).entries:
        if isinstance(entry, Alone):
            devices = tuple((d.group, Fraction(d.nano, NANO)) for d in entry.placement.devices)
            found[entry.placement.name] = (entry.placement.node, devices)
    return found


@settings(max_examples=examples(40))
@given(machines(), wants(), st.sampled_from([Strategy.BINPACK, Strategy.SPREAD]))
def test_the_arrays_place_as_the_reference_does(of: list[Machine], asked: list[Want], strategy: Strategy) -> None:
    made = _cluster(of, asked, Settings(gpu_strategy=strategy, cpu_strategy=strategy))
    has_idle = any(card.used == 0 for machine in of for card in machine.cards)
    assert made.validate() == []
    expected: dict[str, Choice] = {}
    comparable: set[str] = set()
    for want in asked:
        chosen = place(of, want, spread=strategy is Strategy.SPREAD)
        if chosen is None and want.gpus and has_idle:
            # Room made out of idle reservations is a decision of its own (test_retiring.py), which changes the rest.
            break
        comparable.add(want.name)
        if chosen is not None:
            expected[want.name] = chosen
    assert {name: choice for name, choice in _placed(made).items() if name in comparable} == expected
