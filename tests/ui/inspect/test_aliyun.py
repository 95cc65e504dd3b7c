"""The columns of ``kubectl inspect gpushare``."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tests.scheduler.core.objects import NANO, bound, changed, node, pod, reservation
from ui.commands import inspect
from ui.inspect.survey import Found, survey
from ui.inspect.values import Inspection
from wire import names
from wire.core import Node, NodeAddress, Pod

CARD_MIB = 40536
SHARE = 9 * 1024 * NANO // CARD_MIB


def machine(name: str, gpus: int, mem_mib: int, address: str) -> Node:
    made = node(name, gpus=gpus, mem_mib=mem_mib)
    addresses = [NodeAddress(type="InternalIP", address=address)]
    return msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, addresses=addresses))


def card(group: str, on: str, index: int, **book: int) -> Pod:
    made = reservation(group, on, uuid=f"GPU-{group}", book=book)
    return changed(made, annotations={**(made.metadata.annotations or {}), names.DEVICE_INDEX: str(index)})


def seen(*further: Pod) -> Inspection:
    nodes = [machine("node-a", 2, CARD_MIB, "10.0.0.11"), machine("node-b", 1, 15109, "10.0.0.12")]
    tenants = [
        bound(pod("train", mem=9216), "node-a", ("g", SHARE), uuid="GPU-g"),
        bound(pod("serve", mem=4096), "node-b", ("h", 4096 * NANO // 15109), uuid="GPU-h"),
    ]
    books = [card("g", "node-a", 0, **{"uid-train": SHARE}), card("h", "node-b", 0)]
    return survey(Found(nodes=nodes, pods=[*books, *tenants, *further]))


def shown(capsys: pytest.CaptureFixture[str], of: Inspection, **how: Any) -> list[str]:
    inspect.show_aliyun(of, **{"unit": "GiB", "details": False, "output": "table", **how})
    return capsys.readouterr().out.splitlines()


def test_the_summary_has_a_column_for_each_index_and_the_sum_of_the_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, seen()) == [
        "NAME    IPADDRESS  GPU0(Allocated/Total)  GPU1(Allocated/Total)  GPU Memory(GiB)",
        "node-a  10.0.0.11  9/39                   0/39                   9/78",
        "node-b  10.0.0.12  4/14                   0/0                    4/14",
        "--------------------------------------------------------------------------------",
        "Allocated/Total GPU Memory In Cluster:",
        "13/92 (14%)",
    ]


def test_what_is_on_a_device_of_unknown_index_is_pending(capsys: pytest.CaptureFixture[str]) -> None:
    told = shown(capsys, seen(pod("w", gpus=1, bound_to="node-a")))
    assert told[0].split("  ")[-2:] == ["PENDING(Allocated)", "GPU Memory(GiB)"]
    assert told[1].split() == ["node-a", "10.0.0.11", "9/39", "0/39", "39", "48/78"]
    assert told[2].split() == ["node-b", "10.0.0.12", "4/14", "0/0", "0", "4/14"]
    assert told[-1] == "52/92 (56%)"


@pytest.mark.parametrize("details", [False, True])
def test_an_index_beyond_any_devices_makes_no_columns(capsys: pytest.CaptureFixture[str], details: bool) -> None:
    odd = card("i", "node-a", 10**6, **{"uid-odd": SHARE})
    told = shown(capsys, seen(odd, bound(pod("odd", mem=9216), "node-a", ("i", SHARE), uuid="GPU-i")), details=details)
    assert max(line.count("(Allocated") for line in told) == 3
    assert any("ending(Allocated)" in line or "PENDING(Allocated)" in line for line in told)


def test_details_have_a_line_for_each_pod(capsys: pytest.CaptureFixture[str]) -> None:
    told = shown(capsys, seen(pod("w", gpus=1, bound_to="node-a")), details=True)
    assert told[:9] == [
        "",
        "NAME:       node-a",
        "IPADDRESS:  10.0.0.11",
        "",
        "NAME   NAMESPACE  GPU0(Allocated)  GPU1(Allocated)  Pending(Allocated)",
        "train  ns         9                0                0",
        "w      ns         0                0                39",
        "Allocated :  48 (61%)",
        "Total :      78",
    ]
    assert told[9] == "-" * len(told[4])
    assert told[-3:] == ["Allocated/Total GPU Memory In Cluster:", "52/92 (56%)", "(in GiB)"]


def test_a_pod_of_unit_mib_is_told_in_mib(capsys: pytest.CaptureFixture[str]) -> None:
    told = shown(capsys, seen(), unit="MiB")
    assert told[0].endswith("GPU Memory(MiB)")
    assert told[1].split()[2] == "9216/40536"


def test_json_is_that_of_the_inspect_api(capsys: pytest.CaptureFixture[str]) -> None:
    answer = json.loads("\n".join(shown(capsys, seen(), output="json")))
    assert [one["name"] for one in answer["nodes"]] == ["node-a", "node-b"]
    assert answer["nodes"][1] == {
        "name": "node-b",
        "totalGPU": 14,
        "usedGPU": 4,
        "devs": [{"id": 0, "totalGPU": 14, "usedGPU": 4, "pods": [{"name": "serve", "namespace": "ns", "usedGPU": 4}]}],
    }


def test_a_card_of_unknown_memory_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    inspect.show_aliyun(survey(Found(nodes=[node(gpus=1)])), unit="GiB", details=False, output="table")
    told = capsys.readouterr()
    assert told.out.splitlines()[1].split() == ["n1", "-", "0/0", "0/0"]
    assert told.err == "not known: how much memory the GPUs of n1 have; shown as 0\n"


def test_a_cluster_without_gpus_has_an_empty_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, Inspection())[-1] == "0/0 (0%)"
