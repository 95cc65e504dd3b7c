from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.mps import control
from nodeagent.core.mps.control import Client, Namespace, Server

GIB = 1 << 30


def test_servers_are_read_as_the_daemon_documents_them() -> None:
    answer = (
        "training,1000,48201,Ready,/run/nvidia-mps/training,GPU-abcd-1234,-\n"
        "wide,0,48202,Ready,/run/nvidia-mps/wide,GPU-abcd-1234,GPU-efgh-5678,-\n"
        "late,0,-,Starting,/run/nvidia-mps/late,GPU-abcd-1234,-\n"
    )
    assert control.servers(answer) == (
        Server("training", True, "/run/nvidia-mps/training", "GPU-abcd-1234"),
        Server("wide", True, "/run/nvidia-mps/wide", "GPU-abcd-1234,GPU-efgh-5678"),
        Server("late", False, "/run/nvidia-mps/late", "GPU-abcd-1234"),
    )


def test_namespaces_are_read_with_their_limits_and_without() -> None:
    answer = (
        "default,training,Ready,10G,50.00,0,/run/nvidia-mps/training/default\n"
        "small,training,Ready,-,-,0,/run/nvidia-mps/training/small\n"
    )
    assert control.namespaces(answer) == (
        Namespace("default", "training", 10 * GIB, 50_000, "/run/nvidia-mps/training/default"),
        Namespace("small", "training", None, None, "/run/nvidia-mps/training/small"),
    )


def test_clients_are_read_whatever_their_programs_are_called() -> None:
    answer = (
        "51023,training,0,default,python train.py\n51087,training,0,high_priority,x,y\x0b51088,training,0,other,z\n"
    )
    assert control.clients(answer) == {
        Client(51023, "training", "default"),
        Client(51087, "training", "high_priority"),
    }


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ("7,g,0,t,x\n7,g,0,t,x\n7,g,1,t,x", {Client(7, "g", "t")}),
        ("7,g,0,t,x\n8,g,0,t,x\n7,g,0,u,x", {Client(8, "g", "t")}),
        ("7,g,0,t,x\n7,h,0,t,x", set()),
        ("07,g,0,t,x\n0,g,0,t,x\n-7,g,0,t,x\n\u0667,g,0,t,x\n12345678,g,0,t,x\n7,g,t,x\n7,g,t", set()),
    ],
)
def test_a_process_is_a_client_of_one_namespace_or_of_none(answer: str, found: set[Client]) -> None:
    assert control.clients(answer) == found


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "\n\n",
        "error: no daemon",
        "training,1000,48201,Ready,/run",
        "TRAINING,0,1,Ready,/run,GPU-a,-",
        "../x,0,1,Ready,/run,GPU-a,-",
        ",,,,,,",
    ],
)
def test_what_is_not_of_the_form_names_no_server(answer: str) -> None:
    assert control.servers(answer) == ()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("4G", 4 * GIB),
        ("512M", 512 << 20),
        ("1024K", 1 << 20),
        ("1g", GIB),
        ("1.5G", 3 << 29),
        ("0.000001K", 1),
        ("4096", 4096),
        ("0G", None),
        ("-", None),
        ("", None),
        ("G", None),
        ("1e3G", None),
        ("-1G", None),
        ("9" * 13 + "G", None),
        ("9" * 12 + "T", None),
        ("unlimited", None),
    ],
)
def test_amounts_are_whole_bytes_or_nothing(text: str, found: int | None) -> None:
    assert control.memory_bytes(text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("30", 30_000),
        ("30.00", 30_000),
        ("30.0001", 30_001),
        ("30%", 30_000),
        ("100", 100_000),
        ("100.1", None),
        ("0", None),
        ("-", None),
        ("nan", None),
        ("", None),
    ],
)
def test_percentages_are_thousandths_rounded_up_or_nothing(text: str, found: int | None) -> None:
    assert control.millis(text) == found


@given(st.text(alphabet=st.sampled_from("a1,-.\n\r GM_/"), max_size=200))
def test_of_any_answer_something_is_made(answer: str) -> None:
    assert all(one.memory_bytes is None or one.memory_bytes > 0 for one in control.namespaces(answer))
    assert all(one.pid and one.server and one.namespace for one in control.clients(answer))
    assert len(control.servers(answer)) <= answer.count("\n") + 1


def test_of_an_endless_answer_its_beginning_is_read() -> None:
    line = "1,g,0,t,x\n"
    assert control.clients(line * (2 * control.MOST_BYTES // len(line))) == {Client(1, "g", "t")}
