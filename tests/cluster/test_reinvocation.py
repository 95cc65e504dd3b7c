"""A real API server calls the mutating webhook again when a later one changed the pod: that changes nothing more."""

from __future__ import annotations

import base64
import random
import uuid
from pathlib import Path

import anyio
import msgspec
import pytest
from typing_extensions import override

from admission.manifests import webhook_manifests
from admission.review import PodAdmission
from admission.settings import HandOver, Settings
from tests.cluster.doors import Door, Object, opened, registered, served
from tools.cluster.plane import ControlPlane
from wire import names

pytestmark = pytest.mark.cluster


class _Counting(PodAdmission):
    """Ours, with what it answered."""

    answers: list[Object]

    @override
    def mutating(self, review: Object) -> Object:
        answer = super().mutating(review)
        self.answers.append(answer["response"])
        return answer


class _Meddler(PodAdmission):
    """Somebody else's, who labels every pod."""

    @override
    def mutating(self, review: Object) -> Object:
        operations = [{"op": "add", "path": "/metadata/labels", "value": {"meddled": "yes"}}]
        patch = base64.b64encode(msgspec.json.encode(operations)).decode()
        answer = {"uid": review["request"]["uid"], "allowed": True, "patchType": "JSONPatch", "patch": patch}
        return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer}


LIMITS = [
    {"aliyun.com/gpu-mem": "5"},
    {"nvidia.com/gpu": "2", "nvidia.com/gpumem": "3000", "nvidia.com/priority": "1"},
    {"cnvrg.io/metagpu": "100"},
]


@pytest.mark.parametrize("hand_over", HandOver, ids=lambda mode: mode.value)
async def test_a_second_call_leaves_the_pod_as_the_first_made_it(
    control_plane: ControlPlane, tmp_path: Path, hand_over: HandOver
) -> None:
    space = f"again-{uuid.uuid4().hex[:8]}"
    ours = _Counting(Settings(hand_over=hand_over), rng=random.Random(1))
    ours.answers = []
    (tmp_path / "other").mkdir()
    async with (
        opened(control_plane, {space: {}}) as door,
        served(ours, tmp_path) as (endpoint, ca),
        served(_Meddler(Settings(), rng=random.Random(1)), tmp_path / "other") as (elsewhere, other_ca),
    ):
        meddling = webhook_manifests(elsewhere, ca=other_ca)[0]
        meddling["metadata"]["name"] = "zz-meddler"
        async with registered(door, [*webhook_manifests(endpoint, ca=ca), meddling], [space]):
            await _in_force(door, space)
            for limits in LIMITS:
                ours.answers.clear()
                pod = await _tried(door, space, limits)
                first, second = ours.answers
                assert "patch" in first
                assert pod["metadata"]["labels"] == {"meddled": "yes"}
                assert names.GPU_RECORD in pod["metadata"]["annotations"]
                if hand_over is HandOver.ANNOTATIONS:
                    assert "patch" not in second


async def _tried(door: Door, space: str, limits: Object) -> Object:
    spec = {
        "schedulerName": names.SCHEDULER_NAME,
        "automountServiceAccountToken": False,
        "containers": [{"name": "main", "image": "cuda", "resources": {"limits": limits}}],
    }
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    status, answer, _ = await door.call("POST", f"/api/v1/namespaces/{space}/pods?dryRun=All", body)
    assert status == 201, answer
    return answer


async def _in_force(door: Door, space: str) -> None:
    with anyio.fail_after(120):
        while True:
            pod = await _tried(door, space, {})
            if pod["metadata"].get("labels") and pod["spec"]["containers"][0].get("env"):
                return
            await anyio.sleep(0.1)
