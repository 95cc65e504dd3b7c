"""Ports of the host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from typing_extensions import override

from scheduler.core.filters.host_ports import Clashing
from scheduler.core.model.pod_class import HostPort
from tests.scheduler.core.filters.beside import NODES, made, places, reasons, waiting
from tests.scheduler.core.objects import pod


def _ports(*ports: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"containers": [{"name": "c", "ports": list(ports)}], **more}


_HTTP = {"hostPort": 80}


@pytest.mark.parametrize(
    ("one", "other", "clash"),
    [
        (HostPort("TCP", 80), HostPort("TCP", 80), True),
        (HostPort("TCP", 80), HostPort("UDP", 80), False),
        (HostPort("TCP", 80), HostPort("TCP", 81), False),
        (HostPort("TCP", 80, "10.0.0.1"), HostPort("TCP", 80), True),
        (HostPort("TCP", 80, "10.0.0.1"), HostPort("TCP", 80, "10.0.0.1"), True),
        (HostPort("TCP", 80, "10.0.0.1"), HostPort("TCP", 80, "10.0.0.2"), False),
    ],
)
def test_ports_clash_on_one_address(one: HostPort, other: HostPort, clash: bool) -> None:
    record = made(pod("r", bound_to="p")).pod("uid-r")
    assert record is not None
    assert Clashing((one,)).takes(msgspec.structs.replace(record, ports=(other,)), lambda _: None) is clash
    assert Clashing((other,)).takes(msgspec.structs.replace(record, ports=(one,)), lambda _: None) is clash


@pytest.mark.parametrize(
    ("there", "asked", "is_placed"),
    [
        (_ports(_HTTP), _ports(_HTTP), False),
        (_ports(_HTTP), _ports({"hostPort": 443}), True),
        (_ports(_HTTP), _ports({"containerPort": 80}), True),
        (_ports({"hostPort": 80, "hostIP": "0.0.0.0"}), _ports({"hostPort": 80, "hostIP": "127.0.0.1"}), False),  # noqa: S104
        (_ports({"hostPort": 80, "hostIP": "127.0.0.1"}), _ports({"hostPort": 80, "hostIP": "10.0.0.1"}), True),
        (_ports({"containerPort": 80}, hostNetwork=True), _ports(_HTTP), False),
        ({"initContainers": [{"name": "i", "ports": [_HTTP]}]}, _ports(_HTTP), True),
        ({"initContainers": [{"name": "i", "restartPolicy": "Always", "ports": [_HTTP]}]}, _ports(_HTTP), False),
    ],
)
def test_a_port_is_had_once_on_a_node(there: dict[str, Any], asked: dict[str, Any], is_placed: bool) -> None:
    running = pod("r", bound_to="p", scheduler="default-scheduler", spec=there)
    found = made(running, waiting(asked), nodes=NODES[:1])
    assert bool(places(found.decide(0))) is is_placed
    if not is_placed:
        assert reasons(found) == {"host-ports": 1}
        found.remove_pod("uid-r")
        assert places(found.decide(1)) == {"w": "p"}


def test_pods_of_one_decision_have_a_node_each() -> None:
    found = made(*(waiting(_ports(_HTTP), f"w{i}") for i in range(5)))
    assert len({*places(found.decide(0)).values()}) == len(NODES)


class _Seen(tuple[HostPort, ...]):
    """Ports, and how often somebody looked at one."""

    __slots__ = ()
    looks = 0

    @override
    def __iter__(self) -> Iterator[HostPort]:
        for port in super().__iter__():
            _Seen.looks += 1
            yield port


def test_ports_of_two_pods_are_looked_at_once_each() -> None:
    there, asked = (_Seen(HostPort("TCP", first + i) for i in range(100)) for first in (1, 1_000))
    record = made(pod("r", bound_to="p")).pod("uid-r")
    assert record is not None
    _Seen.looks = 0
    assert not Clashing(asked).takes(msgspec.structs.replace(record, ports=there), lambda _: None)
    assert _Seen.looks == 200
