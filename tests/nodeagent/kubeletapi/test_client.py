from __future__ import annotations

from pathlib import Path

import pytest
from grpclib.const import Status
from typing_extensions import override

from nodeagent.kubeletapi.client import PodResources, Unanswered
from nodeagent.kubeletapi.podresources import Devices, PodDevices
from tests.nodeagent.kubeletapi.played import PlayedKubelet, listening

GPU = Devices("nvidia.com/gpu", ("GPU-1",))
ONE = PodDevices("ns", "one", (GPU,))


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    return tmp_path / "kubelet.sock"


async def test_what_kubelet_has_given_a_pod_is_read_and_a_pod_that_it_does_not_know_is_none(socket: Path) -> None:
    played = PlayedKubelet([ONE], [GPU])
    async with listening(played, socket), PodResources(socket) as kubelet:
        assert await kubelet.get("ns", "one") == ONE
        assert await kubelet.get("ns", "two") is None
        assert await kubelet.get("other", "one") is None
        assert await kubelet.list() == (ONE,)
        assert await kubelet.allocatable() == (GPU,)
        assert await kubelet.resources() == frozenset({GPU.resource})


@pytest.mark.parametrize(
    ("refuses", "status"),
    [("PodResources API Get method disabled", Status.UNKNOWN), ("unknown method Get", Status.UNIMPLEMENTED)],
)
async def test_a_kubelet_without_get_is_asked_for_the_list_from_then_on(
    socket: Path, refuses: str, status: Status
) -> None:
    played = PlayedKubelet([ONE], refuses=refuses, status=status)
    async with listening(played, socket), PodResources(socket) as kubelet:
        assert await kubelet.get("ns", "one") == ONE
        assert await kubelet.get("ns", "two") is None
    assert played.asked == ["Get", "List", "List"]


async def test_the_next_kubelet_is_asked_for_get_again(socket: Path) -> None:
    older, newer = PlayedKubelet([ONE], refuses="Get method disabled"), PlayedKubelet([ONE])
    async with PodResources(socket) as kubelet:
        async with listening(older, socket):
            first = kubelet.life()
            await kubelet.get("ns", "one")
        assert kubelet.life() is None
        async with listening(newer, socket):
            assert kubelet.life() not in {first, None}
            assert await kubelet.get("ns", "one") == ONE
    assert newer.asked == ["Get"]


@pytest.mark.parametrize("status", [Status.RESOURCE_EXHAUSTED, Status.UNKNOWN, Status.INTERNAL])
async def test_any_other_error_of_kubelets_is_no_answer(socket: Path, status: Status) -> None:
    played = PlayedKubelet([ONE], refuses="rejected by rate limit", status=status)
    async with listening(played, socket), PodResources(socket) as kubelet:
        with pytest.raises(Unanswered, match=f"Get: {status.name}: rejected by rate limit"):
            await kubelet.get("ns", "one")
    assert played.asked == ["Get"]


async def test_where_nobody_listens_there_is_no_answer_and_a_later_call_connects(socket: Path) -> None:
    async with PodResources(socket) as kubelet:
        assert kubelet.life() is None
        with pytest.raises(Unanswered, match=r"Get: .*kubelet\.sock"):
            await kubelet.get("ns", "one")
        with pytest.raises(Unanswered, match="List: "):
            await kubelet.list()
        assert await kubelet.resources() is None
        async with listening(PlayedKubelet([ONE]), socket):
            assert await kubelet.get("ns", "one") == ONE


async def test_bytes_that_are_no_message_are_no_answer(socket: Path) -> None:
    class Garbled(PlayedKubelet):
        @override
        def list(self, _: bytes) -> bytes:
            return b"\x0a\x7f"

    async with listening(Garbled(), socket), PodResources(socket) as kubelet:
        with pytest.raises(Unanswered, match="unreadable answer"):
            await kubelet.list()
