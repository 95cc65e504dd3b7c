"""Settings of some nodes, and what pods ask on each of them (docs/dialects.md, Nodes that differ)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpu import messages, record
from gpu.dialects import settings_file
from gpu.dialects.settings import DialectSettings
from gpu.request import FractionAsk, GpuRequest, MemoryAsk, WholeAsk
from gpu.share import NANO_PER_DEVICE
from gpu.translate import combine
from gpu.translate.asked import taken
from gpu.translation import NoteCode, Place, Refusal, Translation, told
from tests.gpu.dialects.pods import asking
from tests.values import of_kind
from wire.core import Pod

CONFIG = "nvidia.com/device-plugin.config"
QUARTER, HALF = NANO_PER_DEVICE // 4, NANO_PER_DEVICE // 2


def settings(text: str) -> DialectSettings:
    found = settings_file.of_cluster(text)
    assert isinstance(found, DialectSettings), found
    return found


def translated(pod: Pod, text: str) -> Translation:
    found = combine.translate(pod, settings(text))
    assert isinstance(found, Translation), found
    return found


def asks(request: GpuRequest) -> list[Any]:
    return [ask for container in request.containers for ask in container.asks]


def by_node(made: Translation, *labels: dict[str, str]) -> list[list[Any]]:
    """What is asked first on nodes with each of these sets of labels; [] where the pod can't be."""
    requests = (made.request, *made.alternatives)
    return [
        next((asks(r) for r, place in zip(requests, made.places, strict=True) if place.holds(each)), [])
        for each in labels
    ]


TWO = "{time_slices: 2}"
SLICES = f"replicas: {{time_slices: 4}}\nnodes: [{{labels: {{{CONFIG}: two}}, replicas: {TWO}}}]"


def test_a_replica_is_another_part_on_nodes_with_other_replicas() -> None:
    made = translated(asking({"nvidia.com/gpu.shared": 1}), SLICES)
    assert by_node(made, {}, {CONFIG: "two"}, {CONFIG: "other"}) == [
        [FractionAsk(QUARTER)],
        [FractionAsk(HALF)],
        [FractionAsk(QUARTER)],
    ]
    assert (made.dialect, made.notes) == ("replicas", ())


@pytest.mark.parametrize(
    ("limits", "text", "on_others", "on_pool"),
    [
        pytest.param(
            {"cnvrg.io/metagpu": 30},
            "nodes: [{labels: {pool: a}, metagpu: {units: 60}}]",
            [FractionAsk(300_000_000)],
            [FractionAsk(HALF)],
            id="units of MetaGPU",
        ),
        pytest.param(
            {"aliyun.com/gpu-mem": 5},
            "nodes: [{labels: {pool: a}, aliyun: {unit_mib: 1}}]",
            [MemoryAsk(5120)],
            [MemoryAsk(5)],
            id="units of Aliyun",
        ),
        pytest.param(
            {"nvidia.com/sharedgpu": 1},
            "nodes: [{labels: {pool: a}, replicas: {entries: ['gpu:sharedgpu:4']}}]",
            [],
            [FractionAsk(QUARTER)],
            id="an entry that only some nodes have",
        ),
        pytest.param(
            {"nvidia.com/sharedgpu": 1},
            "replicas: {entries: ['gpu:sharedgpu:4']}\nnodes: [{labels: {pool: a}, replicas: {entries: []}}]",
            [FractionAsk(QUARTER)],
            [],
            id="an entry that some nodes have not",
        ),
        pytest.param(
            {"nvidia.com/gpu": 1},
            "replicas: {time_slices: 4}\nnodes: [{labels: {pool: a}, replicas: {time_slices: 1}}]",
            [FractionAsk(QUARTER)],
            [FractionAsk(NANO_PER_DEVICE)],
            id="a device is all of one where there are no replicas",
        ),
        pytest.param(
            {"cnvrg.io/metagpu": 50},
            "nodes: [{labels: {pool: a}, metagpu: {units: 50}}]",
            [FractionAsk(HALF)],
            [FractionAsk(NANO_PER_DEVICE)],
            id="units that are a whole device",
        ),
    ],
)
def test_what_is_asked_is_what_it_is_on_each_node(
    limits: dict[str, int], text: str, on_others: list[Any], on_pool: list[Any]
) -> None:
    made = translated(asking(limits), text)
    assert by_node(made, {}, {"pool": "a"}) == [on_others, on_pool]


@pytest.mark.parametrize(
    "pod",
    [
        asking({"nvidia.com/gpu": 2}),
        asking({"cnvrg.io/metagpu": 30}),
        asking({"aliyun.com/gpu-mem": 5}),
        asking({}),
        asking({"aliyun.com/gpu-mem": 5, "cnvrg.io/metagpu": 30}),
    ],
)
def test_who_asks_the_same_everywhere_is_read_as_if_nothing_were_said_of_nodes(pod: Pod) -> None:
    text = "nodes: [{labels: {pool: a}, replicas: {entries: ['gpu:sharedgpu:4']}}]"
    assert combine.translate(pod, settings(text)) == combine.translate(pod, DialectSettings())


def test_whole_gpus_of_the_cluster_are_whole_on_all_nodes() -> None:
    made = translated(asking({"nvidia.com/gpu": 1}), "nodes: [{labels: {pool: a}, replicas: {time_slices: 4}}]")
    assert (made.dialect, asks(made.request), made.places) == ("plugin", [WholeAsk()], ())


def test_nodes_on_which_the_words_would_change_the_containers_otherwise_are_left_out_and_named() -> None:
    made = translated(asking({"cnvrg.io/metagpu": 100}), "nodes: [{labels: {pool: a}, metagpu: {units: 200}}]")
    assert by_node(made, {}, {"pool": "a"}) == [[WholeAsk()], []]
    assert [(note.code, note.value) for note in made.notes] == [(NoteCode.LEFT_OUT, "pool=a")]


def test_what_is_refused_on_all_nodes_is_refused_and_on_some_they_are_left_out() -> None:
    text = "replicas: {mps_replicas: 4}\nnodes: [{labels: {pool: a}, replicas: {mps_replicas: 1, time_slices: 4}}]"
    assert by_node(translated(asking({"nvidia.com/gpu.shared": 2}), text), {}, {"pool": "a"}) == [
        [],
        [FractionAsk(QUARTER), FractionAsk(QUARTER)],
    ]
    for limits in ({"nvidia.com/gpu.shared": -1}, {"nvidia.com/gpu": 2, "nvidia.com/gpu.shared": -1}):
        assert isinstance(combine.translate(asking(limits), settings(text)), Refusal)


def test_what_no_record_says_is_not_narrowed_to_nodes() -> None:
    """Whole GPUs and KAI's older words are read from the pod itself."""
    text = "replicas: {mps_replicas: 4}\nnodes: [{labels: {pool: a}, replicas: {mps_replicas: 1}}]"
    assert isinstance(combine.translate(asking({"nvidia.com/gpu": 2}), settings(text)), Refusal)
    kais = asking({"nvidia.com/small": 1}, annotations={"gpu-fraction": "0.5"})
    made = translated(kais, "nodes: [{labels: {pool: a}, replicas: {entries: ['gpu:small:4']}}]")
    assert (made.dialect, made.places) == ("kai", ())


def test_the_first_entry_that_matches_a_node_holds_there() -> None:
    text = """
replicas: {time_slices: 8}
nodes:
  - {labels: {pool: a, size: small}, replicas: {time_slices: 2}}
  - {labels: {pool: a}, replicas: {time_slices: 4}}
"""
    made = translated(asking({"nvidia.com/gpu.shared": 1}), text)
    small = {"pool": "a", "size": "small"}
    assert by_node(made, {}, {"pool": "a"}, small, {"size": "small"}) == [
        [FractionAsk(NANO_PER_DEVICE // 8)],
        [FractionAsk(QUARTER)],
        [FractionAsk(HALF)],
        [FractionAsk(NANO_PER_DEVICE // 8)],
    ]


def test_what_is_preferred_comes_first_on_every_kind_of_node() -> None:
    """Two replicas are of two devices wherever there are two, before they are of one anywhere (I3)."""
    made = translated(asking({"nvidia.com/gpu.shared": 2}), SLICES)
    requests = [asks(request) for request in (made.request, *made.alternatives)]
    assert requests == [
        [FractionAsk(QUARTER)] * 2,
        [FractionAsk(HALF)] * 2,
        [FractionAsk(HALF)],
        [FractionAsk(NANO_PER_DEVICE)],
    ]
    assert [bool(place.labels) for place in made.places] == [False, True, False, True]


def test_a_namespace_that_says_its_unit_says_it_for_all_nodes() -> None:
    cluster = settings("nodes: [{labels: {pool: a}, aliyun: {unit_mib: 1}}]")
    for said, on_pool in [("{aliyun: {unit_mib: 1024}}", 5120), ("{strict: true}", 5)]:
        found = of_kind(DialectSettings, settings_file.of_namespace(said, cluster))
        made = of_kind(Translation, combine.translate(asking({"aliyun.com/gpu-mem": 5}), found))
        first = by_node(made, {"pool": "a"})[0] if made.places else asks(made.request)
        assert first == [MemoryAsk(on_pool)]


# --- the record ------------------------------------------------------------------------------------------------------


def test_the_record_says_it_all_and_reads_back_the_same() -> None:
    made = translated(asking({"cnvrg.io/metagpu": 30}), "nodes: [{labels: {pool: a}, metagpu: {units: 60}}]")
    text = record.render(made)
    said = msgspec.json.decode(text)
    assert said["version"] == 2
    assert said["places"] == [{"otherThan": [{"pool": "a"}]}, {"labels": {"pool": "a"}, "unit": 60}]
    read = of_kind(Translation, record.read(text))
    assert (read.request, read.alternatives, read.places) == (made.request, made.alternatives, made.places)
    assert [way.unit for number in range(2) if (way := taken(read, number))] == [0, 60]


def test_a_pod_with_its_record_that_comes_again_keeps_it() -> None:
    pod = asking({"nvidia.com/gpu.shared": 1})
    made = translated(pod, SLICES)
    meta = msgspec.structs.replace(pod.metadata, annotations={"moorage.dev/gpu": record.render(made)})
    again = of_kind(Translation, combine.translate(msgspec.structs.replace(pod, metadata=meta), settings(SLICES)))
    assert (again.request, again.alternatives, again.places) == (made.request, made.alternatives, made.places)


@pytest.mark.parametrize(
    "place",
    [
        {"labels": {str(n): "" for n in range(16)}},
        {"otherThan": [{str(n): ""} for n in range(32)]},
        {"unit": 2**31 - 1},
        {"labels": {"a": "b"}, "otherThan": [{"c": "d"}]},
    ],
)
def test_the_most_that_a_place_may_say_is_read(place: dict[str, Any]) -> None:
    said = msgspec.json.decode(record.render(translated(asking({"nvidia.com/gpu.shared": 1}), SLICES)))
    read = of_kind(Translation, record.read(msgspec.json.encode({**said, "places": [{}, place]}).decode()))
    assert msgspec.json.decode(record.render(read))["places"][1] == place


@pytest.mark.parametrize(
    "change",
    [
        {"version": 1},
        {"places": [{}, {"labels": {"a": "b", "c": "d\x1b"}}]},
        {"places": [{}, {"otherThan": [{"a": "b"}, {"c\x1b": "d"}]}]},
        {"places": [{}]},
        {"places": []},
        {"places": [{}, {"otherThan": [{}]}]},
        {"places": [{}, {"labels": {"a": "b\n"}}]},
        {"places": [{}, {"labels": {str(n): "" for n in range(17)}}]},
        {"places": [{}, {"otherThan": [{str(n): ""} for n in range(33)]}]},
        {"places": [{}, {"unit": -1}]},
        {"places": [{}, {"labels": 1}]},
    ],
)
def test_places_that_cant_be_make_no_record(change: dict[str, Any]) -> None:
    said = msgspec.json.decode(record.render(translated(asking({"nvidia.com/gpu.shared": 1}), SLICES)))
    assert isinstance(record.read(msgspec.json.encode(said).decode()), Translation)
    assert isinstance(record.read(msgspec.json.encode({**said, **change}).decode()), Refusal)


def test_people_are_told_on_which_nodes() -> None:
    made = translated(asking({"nvidia.com/gpu.shared": 1}), SLICES)
    assert [lines[-1] for lines in messages.way_lines(made)] == [
        f"on nodes without {CONFIG}=two",
        f"on nodes with {CONFIG}=two",
    ]
    nested = Place(labels=(("a", "1"), ("b", "2")), other_than=((("c", "3"),), (("d", "4"),)))
    assert messages.place_text(nested) == "on nodes with a=1,b=2, without c=3 or d=4"


# --- the file --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "field", "told_is"),
    [
        ("a", "nodes", "a list of objects"),
        ("[a]", "nodes[0]", "a list of objects"),
        ("[{replicas: {time_slices: 2}}]", "nodes[0].labels", "1 to 8 labels"),
        ("[{labels: {}}]", "nodes[0].labels", "1 to 8 labels"),
        ("[{labels: {pool: 1}}]", "nodes[0].labels.pool", "1 to 8 labels"),
        ("[{labels: {'a b': x}}]", "nodes[0].labels", "1 to 8 labels"),
        ("[{labels: {pool: 'a b'}}]", "nodes[0].labels.pool", "1 to 8 labels"),
        ("[{labels: {pool: a}, strict: true}]", "nodes[0].strict", "nodes[0].replicas"),
        ("[{labels: {pool: a}, metagpu: {resource: x}}]", "nodes[0].metagpu.resource", "nodes[0].metagpu.units"),
        ("[{labels: {pool: a}, metagpu: {units: many}}]", "nodes[0].metagpu.units", "a whole number"),
        ("[{labels: {pool: a}, metagpu: {units: 0}}]", "nodes[0].metagpu.units", "1 to 1000"),
        ("[{labels: {pool: a}, aliyun: {unit_mib: 2}}]", "nodes[0].aliyun.unit_mib", "1024 for GiB or 1 for MiB"),
        ("[{labels: {pool: a}, replicas: {entries: ['gpu:x:0']}}]", "nodes[0].resourceConfig", "gpu:sharedgpu:4"),
        ("[{labels: {a: b}}, {labels: {a: b, c: d}}]", "nodes[1].labels", "more labels before fewer"),
    ],
)
def test_a_wrong_entry_names_itself_at_the_start(nodes: str, field: str, told_is: str) -> None:
    found = settings_file.of_cluster(f"nodes: {nodes}")
    assert not isinstance(found, DialectSettings)
    (mistake,) = found
    assert mistake.field == field
    assert told_is in mistake.allowed
    assert "nodes" in told(mistake)


def test_a_namespace_cant_say_what_nodes_have() -> None:
    found = of_kind(Refusal, settings_file.of_namespace("{nodes: []}", DialectSettings()))
    assert found.field == "nodes"


def test_however_many_ways_there_are_on_however_many_kinds_of_nodes_the_record_can_be_read() -> None:
    kinds = ", ".join(f"{{labels: {{pool: p{n}}}, replicas: {{time_slices: {n + 2}}}}}" for n in range(16))
    text = f"replicas: {{time_slices: 64}}\nnodes: [{kinds}]"
    limits = {"nvidia.com/gpu.shared": 8}
    made = translated(asking(limits, limits, limits), text)
    assert len(made.alternatives) == 64
    assert len(record.render(made)) < 100_000
    assert len({place.labels for place in made.places}) == 17
    read = of_kind(Translation, record.read(record.render(made)))
    assert read.places == made.places
