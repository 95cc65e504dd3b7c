"""Every row of the translation table through a real API server: what it stores is what is translated offline."""

from __future__ import annotations

import random
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import anyio
import msgspec
import pytest

from admission.manifests import webhook_manifests
from admission.review import PodAdmission
from admission.settings import Choices, Settings
from gpu import record
from gpu.dialects.settings import DialectSettings
from gpu.translate import combine, registry
from gpu.translate.asked import needs_record
from gpu.translation import Refusal, told
from tests.cluster.doors import Door, Object, opened, registered, served
from tests.gpu.dialects.everyrow import Case, every_row
from tools.cluster.plane import ControlPlane
from wire import names
from wire.core import Pod

pytestmark = pytest.mark.cluster

CASES = {case.name: case for case in every_row()}
_AT_ONCE = 8


class Answer(msgspec.Struct):
    """What the server said of a row's pod, which came to ``namespace``."""

    namespace: str
    status: int
    body: Object
    warnings: int


@pytest.fixture(scope="module")
async def answers(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[dict[str, Answer]]:
    """Each row's pod tried, in a namespace of its settings."""
    mark = uuid.uuid4().hex[:8]
    spaces: dict[DialectSettings, str] = {}
    for case in CASES.values():
        spaces.setdefault(case.settings, f"rows-{mark}-{len(spaces)}")
    choices = {name: Choices(dialects=settings) for settings, name in spaces.items()}
    admission = PodAdmission(Settings(), rng=random.Random(1), choices_of=choices.__getitem__)
    async with AsyncExitStack() as stack:
        door = await stack.enter_async_context(opened(control_plane, {name: {} for name in choices}))
        endpoint, ca = await stack.enter_async_context(served(admission, tmp_path_factory.mktemp("door")))
        manifests = webhook_manifests(endpoint, ca=ca)
        await stack.enter_async_context(registered(door, manifests, list(choices)))
        await _in_force(door, next(iter(choices)))
        yield await _tried_all(door, spaces)


async def _tried_all(door: Door, spaces: dict[DialectSettings, str]) -> dict[str, Answer]:
    found: dict[str, Answer] = {}
    limiter = anyio.CapacityLimiter(_AT_ONCE)

    async def one(case: Case) -> None:
        async with limiter:
            space = spaces[case.settings]
            status, body, warnings = await door.call("POST", _path(space), _manifest(case.pod))
            found[case.name] = Answer(space, status, body, len(warnings))

    async with anyio.create_task_group() as tasks:
        for case in CASES.values():
            tasks.start_soon(one, case)
    return found


async def _in_force(door: Door, namespace: str) -> None:
    """Wait until the server asks the mutating webhook."""
    probe = _manifest(msgspec.convert({"spec": {"containers": [{"name": "main"}]}}, Pod))
    with anyio.fail_after(120):
        while True:
            body = (await door.call("POST", _path(namespace), probe))[1]
            if body["spec"]["containers"][0].get("env"):
                return
            await anyio.sleep(0.1)


def _path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods?dryRun=All"


def _manifest(pod: Pod) -> Object:
    """The pod as its user would write it: images that the rows leave out, and our scheduler."""
    raw: Object = msgspec.to_builtins(pod)
    metadata = {key: value for key, value in raw.get("metadata", {}).items() if key != "namespace"}
    spec = {**raw["spec"], "schedulerName": names.SCHEDULER_NAME, "automountServiceAccountToken": False}
    for field in ("containers", "initContainers"):
        spec[field] = [{"image": "cuda", **container} for container in spec.get(field) or ()]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {**metadata, "name": "p"}, "spec": spec}


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in CASES.items()])
async def test_a_row_is_stored_as_it_is_translated_offline(case: Case, answers: dict[str, Answer]) -> None:
    answer = answers[case.name]
    there = msgspec.structs.replace(case.pod.metadata, namespace=answer.namespace)
    offline = combine.translate(msgspec.structs.replace(case.pod, metadata=there), case.settings)
    if isinstance(offline, Refusal):
        _is_refused(answer, offline)
        return
    assert answer.status == 201, answer.body
    annotations = answer.body["metadata"].get("annotations") or {}
    assert annotations.get(names.GPU_RECORD) == (record.render(offline) if needs_record(offline) else None)
    assert answer.warnings == len(set(offline.notes))
    assert not registry.is_spoken(msgspec.convert({"spec": answer.body["spec"]}, Pod))


def _is_refused(answer: Answer, offline: Refusal) -> None:
    """In the words of the translation; by the server itself where it can't even read a quantity."""
    message = answer.body["message"]
    if answer.status == 400:
        assert "quantities must match" in message or "unable to parse quantity" in message
        return
    assert answer.status == 403, answer.body
    if "." in offline.value and "must be an integer" in offline.message:
        # Quantities come in the server's own notation: 0.5 is 500m.
        assert f"({offline.field} is " in message
        assert f"allowed: {offline.allowed})" in message
    else:
        assert told(offline) in message
