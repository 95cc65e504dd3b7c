"""Two drivers of the same steps: the blocking one of the process, and the async one that simulations use."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager

import anyio
import pytest

from kube.client.errors import Unreachable
from kube.client.transport import JSON, OBJECT_BYTES, Response, Transport
from reservation import steps
from reservation.device import Device, DeviceReader
from reservation.http_client import ApiServer, Endpoint
from reservation.main import drive, wait_for_stop
from tests.reservation.pod_server import NAME, NAMESPACE, UID, PodServer, Seen

ENVIRON = {"POD_NAMESPACE": NAMESPACE, "POD_NAME": NAME, "POD_UID": UID}
IDENTITY = {
    "run.ai/reserve_for_gpu_index": "GPU-a",
    "moorage.dev/device": "3",
    "moorage.dev/device-memory-mib": "46068",
}


class OneCard:
    def read(self) -> Device:
        return Device(uuid="GPU-a", minor=3, mem_mib=46068)


class Pauses:
    """Time that passes at once, and a stop that comes with the n-th look."""

    def __init__(self, *, stop_at: float = float("inf")) -> None:
        self.waited: list[float | None] = []
        self._stop_at = stop_at

    def __call__(self, timeout_s: float | None) -> bool:
        if timeout_s != 0:
            self.waited.append(timeout_s)
        self._stop_at -= 1
        return timeout_s is None or self._stop_at < 0


def test_with_the_api_server_away_the_process_gives_up_after_bounded_pauses(
    capsys: pytest.CaptureFixture[str], unused_port: int
) -> None:
    server = ApiServer(Endpoint(host="127.0.0.1", port=unused_port, tls=False, token_file="", ca_file=""))
    pauses = Pauses()
    code = drive(ENVIRON, call=server.call, reader=OneCard(), stop_wait=pauses)
    lines = capsys.readouterr().err.splitlines()
    assert code == 1
    assert len(lines) == steps.MAX_CALLS
    assert lines[-1].startswith(f"unable to get pod {NAMESPACE}/{NAME}: 127.0.0.1:{unused_port}: [Errno 111]")
    assert len(pauses.waited) == steps.MAX_CALLS - 1
    assert sum(pause for pause in pauses.waited if pause is not None) < 30


@pytest.mark.parametrize("looks", range(3))
def test_a_stop_between_any_two_steps_ends_it_with_success(api: PodServer, looks: int) -> None:
    host, _, port = api.url.removeprefix("http://").partition(":")
    server = ApiServer(Endpoint(host=host, port=int(port), tls=False, token_file="", ca_file=""))
    assert drive(ENVIRON, call=server.call, reader=OneCard(), stop_wait=Pauses(stop_at=looks)) == 0
    assert len(api.seen) == [1, 1, 2][looks]


def test_it_holds_the_device_for_ever_and_ends_when_it_is_stopped(
    api: PodServer, capsys: pytest.CaptureFixture[str]
) -> None:
    host, _, port = api.url.removeprefix("http://").partition(":")
    server = ApiServer(Endpoint(host=host, port=int(port), tls=False, token_file="", ca_file=""))
    pauses = Pauses()
    assert drive(ENVIRON, call=server.call, reader=OneCard(), stop_wait=pauses) == 0
    assert pauses.waited == [None]
    assert capsys.readouterr().err == (
        f"pod {NAMESPACE}/{NAME} holds run.ai/reserve_for_gpu_index=GPU-a, moorage.dev/device=3, "
        "moorage.dev/device-memory-mib=46068\n"
    )


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_that_came_before_the_wait_is_not_missed(stop: signal.Signals) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    try:
        for timeout_s in (None, 0):
            assert not wait_for_stop(0)
            signal.pthread_kill(threading.get_ident(), stop)
            assert wait_for_stop(timeout_s)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class PodTransport:
    """A kube Transport over the pod server's object, without a network; the first call is lost."""

    def __init__(self, server: PodServer) -> None:
        self._server = server
        self._lost = False

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        body: bytes | None = None,
        content_type: str = "application/json",
        accept: str = JSON,
        timeout_s: float,
        most_bytes: int = OBJECT_BYTES,
    ) -> Response:
        if not self._lost:
            self._lost = True
            raise Unreachable("lost")
        seen = Seen(method, path, {"Content-Type": content_type}, json.loads(body) if body else None)
        status, headers, answer = self._server.answer(seen)
        return Response(status, headers, answer)

    def stream(
        self, path: str, *, query: Mapping[str, str], accept: str = JSON, timeout_s: float
    ) -> AbstractAsyncContextManager[tuple[Response, AsyncIterator[bytes]]]:
        raise AssertionError("the reservation process watches nothing")


async def answer(transport: Transport, call: steps.Call) -> steps.Answer | steps.NoAnswer:
    try:
        response = await transport.request(
            call.method, call.path, query=call.query, body=call.body, content_type=steps.MERGE_PATCH, timeout_s=5.0
        )
    except Unreachable as error:
        return steps.NoAnswer(str(error))
    return steps.Answer(response.status, response.body, float(response.headers.get("retry-after", "0")))


async def reserve(environ: Mapping[str, str], transport: Transport, reader: DeviceReader, stop: anyio.Event) -> int:
    """The driver that the docstring of reservation/steps.py gives as its example."""
    state, action = steps.start(environ)
    event: steps.Event
    while not isinstance(action, steps.Exit):
        match action:
            case steps.Call():
                event = await answer(transport, action)
            case steps.ReadDevice():
                event = reader.read()
            case steps.Wait():
                event = steps.Waited()
            case steps.Hold():
                await stop.wait()
                event = steps.Stopped()
        state, action = steps.step(state, event)
    return action.code


async def test_the_same_steps_run_over_an_async_transport() -> None:
    server, stop, codes = PodServer(), anyio.Event(), list[int]()

    async def run() -> None:
        codes.append(await reserve(ENVIRON, PodTransport(server), OneCard(), stop))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await anyio.wait_all_tasks_blocked()
        assert server.annotations == IDENTITY
        assert codes == []
        stop.set()
    assert codes == [0]
    assert server.methods == ["GET", "PATCH"]
