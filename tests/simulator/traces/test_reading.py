"""Traces of the openb form: what is read, and what is refused with file, line, field and value."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import pytest

from simulator.traces import trace
from simulator.traces.records import Point, at_load, load_curve
from simulator.traces.trace import Ask, GoRandom, MalformedTrace, TraceNode, TracePod

pytestmark = pytest.mark.thorough

_NODES = "sn,cpu_milli,memory_mib,gpu,model\nb,96000,393216,8,G2\na,8000,1024,0,\n"
_PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,creation_time,deletion_time\n"
    "p2,12000,16384,1,460,V100M16|T4,LS,10,25\n"
    "p1,6000,12288,0,500,T4,BE,,\n"
    "p3,1,1,8,1000,,LS,30,20\n"
)


def _written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_nodes_and_pods_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    assert trace.read_nodes(_written(tmp_path, "n.csv", _NODES)) == (
        TraceNode(name="a", cpu_milli=8_000, mem_mib=1_024, gpus=0),
        TraceNode(name="b", cpu_milli=96_000, mem_mib=393_216, gpus=8, model="G2"),
    )
    share = Ask(cpu_milli=12_000, mem_mib=16_384, gpus=1, gpu_milli=460, models=("V100M16", "T4"))
    assert trace.read_pods(_written(tmp_path, "p.csv", _PODS)) == (
        TracePod(name="p1", ask=Ask(cpu_milli=6_000, mem_mib=12_288)),
        TracePod(name="p2", ask=share, lived_s=15),
        TracePod(name="p3", ask=Ask(cpu_milli=1, mem_mib=1, gpus=8, gpu_milli=1_000), lived_s=0),
    )


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    plain, marked = _written(tmp_path, "p.csv", _PODS), _written(tmp_path, "m.csv", f"\ufeff{_PODS}")
    assert trace.read_pods(marked) == trace.read_pods(plain)


def test_a_folder_has_files_plain_or_compressed(tmp_path: Path) -> None:
    (tmp_path / "openb_node_list_gpu_node.csv.xz").write_bytes(lzma.compress(_NODES.encode()))
    (tmp_path / "openb_pod_list_default.csv.gz").write_bytes(gzip.compress(_PODS.encode()))
    _written(tmp_path, "openb_pod_list_other.csv", _PODS)
    assert len(trace.openb_nodes(tmp_path)) == 2
    assert trace.openb_pods(tmp_path, "default") == trace.openb_pods(tmp_path, "other")
    assert trace.openb_variants(tmp_path) == ["default", "other"]
    with pytest.raises(MalformedTrace, match=r"no openb_pod_list_third.*variants there: default, other"):
        trace.openb_pods(tmp_path, "third")


_HEAD = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (_HEAD + ",1,1,0,0\n", r"p\.csv:2: name: ''; allowed: a name"),
        (_HEAD + "p,1,1,0,0\nq,-1,1,0,0\n", r"p\.csv:3: cpu_milli: '-1'; allowed: a whole number from 0 to"),
        (_HEAD + "p,1,1_0,0,0\n", r"memory_mib: '1_0'"),
        (_HEAD + "p,1,٣,0,0\n", r"memory_mib: '٣'"),
        (_HEAD + "p,1,1,65,1000\n", r"num_gpu: '65'; allowed: a whole number from 0 to 64"),
        (_HEAD + f"p,{'9' * 5000},1,0,0\n", r"cpu_milli: '9{40}'"),
        (_HEAD + "p,1,1,1,0\n", r"gpu_milli: '0'; allowed: from 1 to 1000"),
        (_HEAD + "p,1,1,2,500\n", r"gpu_milli: '500'; allowed: 1000 for a pod with several GPUs"),
        ("name\np\n", r"num_gpu: ''"),
    ],
)
def test_what_is_wrong_is_refused_with_its_place(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(MalformedTrace, match=says):
        trace.read_pods(_written(tmp_path, "p.csv", text))


@pytest.mark.parametrize("name", ["p.csv", "p.csv.xz", "p.csv.gz"])
def test_a_file_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with pytest.raises(MalformedTrace, match="not readable as CSV"):
        trace.read_pods(path)
    path.write_bytes(b"\xff\x00broken")
    with pytest.raises(MalformedTrace):
        trace.read_pods(path)


def test_a_small_file_that_unpacks_to_very_much_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.csv.xz"
    path.write_bytes(lzma.compress(_HEAD.encode() + b"x" * (1 << 20)))
    with pytest.raises(MalformedTrace, match=r"characters|field larger"):
        trace.read_pods(path)


# Go's generator, by draws that are known.


def test_the_first_draws_of_seed_one_are_those_that_every_gopher_knows() -> None:
    rng = GoRandom(1)
    assert [rng.below(100) for _ in range(10)] == [81, 87, 47, 59, 81, 18, 25, 40, 56, 0]


def test_the_first_numbers_of_seed_one() -> None:
    rng = GoRandom(1)
    assert [rng.int63() for _ in range(2)] == [5577006791947779410, 8674665223082153551]


@pytest.mark.parametrize("count", [1, 2, 7, 1_024])
def test_an_order_has_each_once_and_differs_by_seed(count: int) -> None:
    drawn = GoRandom(5).permutation(count)
    assert sorted(drawn) == list(range(count))
    shuffled = list(range(count))
    GoRandom(5).shuffle(shuffled)
    assert sorted(shuffled) == list(range(count))
    assert count < 7 or (drawn != shuffled and drawn != GoRandom(6).permutation(count))


# GPUs in use by load.


def test_a_point_is_the_mean_over_the_arrivals_of_its_load() -> None:
    # of 10,000: 1.49 and 1.5 round to 1 and 2 percent
    curve = load_curve([149, 150, 240, 300], [149, 150, 150, 210], 10_000)
    assert curve == (Point(1, 149), Point(2, 150), Point(3, 210))
    assert curve[0].used_percent == 1.49


def test_a_load_that_nobody_brought_is_read_beside() -> None:
    curve = load_curve([100, 500], [100, 400], 1_000)
    assert at_load(curve, 10) == at_load(curve, 9) == Point(10, 1_000)
    assert at_load(curve, 50) == Point(50, 4_000)
    assert at_load(curve, 30) is None
    assert at_load((), 30) is None
