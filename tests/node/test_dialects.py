"""The forms of five systems on a real node: manifests unchanged, and what their apps find in their containers.

One test for all of them, on a node of its own: a node takes long to start, and so does each container.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import pytest
import yaml

from tests.node.documents.apps import Found
from tests.node.documents.asked import ASKED, CARD_MIB, GPU_OF, GPUS, INDEXED, NODE, Asked, Name
from tests.node.documents.stage import Stage
from tests.node.pods import Machine
from tools.cluster.deployment import ADMISSION, BINDER, SCHEDULER, Deployment, Options
from tools.cluster.plane import ControlPlane
from tools.node.node import Node
from tools.node.nvidia_runtime import CDI_KIND
from wire import names

# All in one test: where a machine is short of processors its node alone takes minutes to start.
pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]

_LABELS = {"nvidia.com/gpu.memory": str(CARD_MIB), "nvidia.com/gpu.count": str(len(GPUS))}
#: Replicas are a setting of iktos' plugin, and so are ours.
_SETTINGS = {"replicas": {"entries": ["gpu:sharedgpu:4", "mig-3g.20gb:small:2"]}}
#: Namespace -> its annotations, beside the label that adopts its pods.
_SPACES = {
    "clearml": {},
    "clearml-older": {names.DIALECTS: '{"clearml": {"legacy_replicas": 8}}'},
    "aliyun": {},
    "metagpu": {},
    "kai": {},
    "replicas": {},
}
#: As KAI's installation makes it.
_QUEUE = {
    "apiVersion": "scheduling.run.ai/v2",
    "kind": "Queue",
    "metadata": {"name": "default-queue"},
    "spec": {
        "resources": {kind: {"quota": -1, "limit": -1, "overQuotaWeight": 1} for kind in ("gpu", "cpu", "memory")}
    },
}
#: What MetaGPU's guide has set on GPU nodes.
_TAINTS = [{"key": key, "value": "present", "effect": "NoSchedule"} for key in ("cnvrg.io/metagpu", "nvidia.com/gpu")]


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    """A node as the documents have it: NVIDIA's runtime is the default one."""
    with (
        ControlPlane(nodes=[NODE]) as plane,
        Node(plane, NODE, gpus=GPUS, labels=_LABELS, default_runtime="nvidia") as node,
    ):
        yield Machine(plane, node)


@pytest.fixture(scope="module")
def moorage(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """All of Moorage, and namespaces whose pods it adopts."""
    settings = tmp_path_factory.mktemp("settings") / "dialects.yaml"
    settings.write_text(yaml.safe_dump(_SETTINGS))
    arguments = {BINDER: ["--reservation-runtime-class", "nvidia"], ADMISSION: ["--dialects", str(settings)]}
    with Deployment(machine.plane, Options(arguments=arguments)) as deployment:
        machine.plane.apply(yaml.safe_dump_all([_QUEUE, *(_namespace(*space) for space in _SPACES.items())]))
        yield deployment
        deployment.check()


def _namespace(name: str, annotations: Mapping[str, str]) -> dict[str, Any]:
    metadata = {"name": name, "labels": {names.ADOPT: "true"}, "annotations": dict(annotations)}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


SPANS: Name = ("metagpu", "one-and-a-half")
SIXTEENTH: Name = ("clearml", "fraction-0-0625")
#: What waits for slices, which these cards have not (row I6).
SLICED: Name = ("replicas", "small")
#: Keeps cards from others for a while.
_GUARD: Name = ("replicas", "guard")
#: Beside those three there is room on the second card for one of these, and for none of the others.
FIT: Sequence[Name] = (("clearml", "fraction-0-250"), ("replicas", "sharedgpu"))
TOO_LARGE: Sequence[Name] = (("aliyun", "gpushare-test-pod"), ("metagpu", "half"), ("kai", "gpu-sharing"))


def test_apps_of_five_systems_find_what_they_asked_for(
    machine: Machine, moorage: Deployment, subtests: pytest.Subtests
) -> None:
    stage = Stage(machine, _SPACES)
    with subtests.test("only pods that tolerate the taints of MetaGPU's guide come onto its node"):
        stage.taint(_TAINTS)
        stage.create(SIXTEENTH, SPANS)
        stage.run(SPANS)
        assert "untolerated taint" in stage.says_why_it_waits(SIXTEENTH)
    stage.taint([])
    _indexed(stage)
    with subtests.test("pods of several systems share one card, and who finds no room waits"):
        fits = _crowded(stage)
    _switch_to_cdi(moorage)
    stage.remove(_GUARD)
    with subtests.test("a part of a MIG slice waits where there are none"):
        stage.create(SLICED)
        assert "enough of mig profile: nvidia.com/mig-3g.20gb" in stage.says_why_it_waits(SLICED)
    stage.create(*stage.waiting)
    runs = stage.run(*ASKED)
    for (space, name), containers in ASKED.items():
        for container, asked in containers.items():
            with subtests.test("finds what it asked for", space=space, pod=name, container=container):
                cdi = (space, name) not in {SPANS, SIXTEENTH, INDEXED, fits}
                _finds(runs[space, name][container], asked, cdi=cdi)
    with subtests.test("no card is given away more than once"):
        assert {uuid: rest for uuid, rest in _left(runs).items() if rest < 0} == {}


def _indexed(stage: Stage) -> None:
    """CFGI's renamed resources: a part of the card of one index (C11)."""
    runs = stage.run(SIXTEENTH)
    (uuid,) = runs[SIXTEENTH]["clearml-task"].devices
    stage.create_beside(INDEXED, f"nvidia.com/gpu-{GPU_OF[uuid].minor}", 1)
    (app,) = stage.run(INDEXED)[INDEXED].values()
    assert app.devices == (uuid,)


def _crowded(stage: Stage) -> Name:
    """Whole GPUs take all cards but the two of the first pods, of which one is half free, but for three sixteenths.

    Returns the pod that came onto that one.
    """
    stage.create_beside(_GUARD, "nvidia.com/gpu", len(GPUS) - 2)
    stage.run(_GUARD)
    stage.create(*FIT, *TOO_LARGE)
    for one in TOO_LARGE:
        assert "GPU" in stage.says_why_it_waits(one)
    fits = stage.first_bound(FIT)
    runs = stage.run(SPANS, SIXTEENTH, fits)
    spanned, shared, late = ({uuid for app in runs[one].values() for uuid in app.devices} for one in runs)
    assert late == shared < spanned
    return fits


def _switch_to_cdi(moorage: Deployment) -> None:
    """Who is bound from now on is told CDI names."""
    for component in (BINDER, SCHEDULER):
        moorage.stop(component)
        moorage.start(component, "--cdi-enabled")


def _finds(app: Found, asked: Asked, *, cdi: bool) -> None:
    gpus = [GPU_OF[uuid] for uuid in app.given]
    assert len(gpus) == len(asked.cards)
    env = asked.env(gpus)
    if cdi and asked.is_shared:
        env[names.ENV_VISIBLE_DEVICES] = ",".join(CDI_KIND + gpu.uuid for gpu in gpus)
    assert dict(app.env) == env


def _left(runs: Mapping[Name, Mapping[str, Found]]) -> dict[str, Fraction]:
    """What is left of each card, by what its pods asked. An init container's share is kept for its pod's life."""
    left = {gpu.uuid: Fraction(1) for gpu in GPUS}
    for one, apps in runs.items():
        for container, app in apps.items():
            for uuid, card in zip(app.given, ASKED[one][container].cards, strict=True):
                left[uuid] -= card
    return left
