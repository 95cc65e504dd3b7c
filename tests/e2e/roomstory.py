"""Stories of pods that go for others, as lines of text, and how they are played on the real control plane.

Entries are separated by ``|``:

- queues: ``a quota=2 limit=3 weight=1 parent=d reclaimMinRuntime=1h``
- pods: ``name queue ask`` and words: ``x3`` (three of them: name-0 to name-2), ``fixed`` (non-preemptible),
  ``prio=80``, ``gang=2`` (a PodGroup of the name, with this minimum), ``on=0`` (the node of this number),
  ``app=web`` (a label), ``grace=5``. An ask is a number of GPUs (``2``), a part (``0.5``), memory (``20000MiB``) or
  cores (``cpu=4``).
- budgets: ``app=web minAvailable=1``
- outcome: names of the pods that run in the end; ``a*2``: two of those whose names begin with ``a-``. The others of
  ``waiting`` wait and say why, and all that is left are gone.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Final, NamedTuple

import anyio

from tests.e2e.cluster import PATIENCE_S, Pod, eventually, pod, scheduled_message
from tests.e2e.grouped import GROUPS
from tests.e2e.teams import Teams
from tests.e2e.workloads import Json
from tools.cluster.plane import ControlPlane
from wire import names

#: For as long as this nothing more may happen once a story has ended as it should.
_QUIET_S: Final = 1.0
#: Creation times on the wire are in seconds: pods that differ in age are made this far apart.
_APART_S: Final = 1.1
#: Priority classes of the stories.
PRIORITIES: Final = (10, 60, 80)


class Story(NamedTuple):
    """One line of the tables. ``aged``: those that run were made one after the other."""

    nodes: str
    queues: str
    running: str
    waiting: str
    then: str
    budgets: str = ""
    aged: bool = False


async def play(story: Story, at: Teams, plane: ControlPlane) -> None:
    """Set the scene, let those come that wait, and see who runs in the end. Raises AssertionError."""
    for entry in _entries(story.queues):
        await _make_queue(at, entry)
    for budget in _entries(story.budgets):
        _make_budget(at, plane, budget)
    there = await _make_all(at, story.running, apart_s=_APART_S if story.aged else 0.0)
    await at.on.running(len(there))
    asked = await _make_all(at, story.waiting)
    try:
        await eventually(lambda: _is_over(at, story, asked), f"{story.then} to run", within_s=PATIENCE_S)
    except AssertionError as waited:
        raise AssertionError(f"{waited}: {await _seen(at)}") from None
    await anyio.sleep(_QUIET_S)
    assert await _is_over(at, story, asked), f"it did not stay so: {await _seen(at)}"


def _entries(text: str) -> list[str]:
    return [entry.strip() for entry in text.split("|") if entry.strip()]


async def _make_queue(at: Teams, entry: str) -> None:
    name, *words = entry.split()
    said = dict(word.split("=") for word in words)
    parent = said.pop("parent", "")
    more: Json = {key: said.pop(key) for key in ("reclaimMinRuntime", "preemptMinRuntime") if key in said}
    await at.queue(name, parent, more=more, **{key: float(value) for key, value in said.items()})


def _make_budget(at: Teams, plane: ControlPlane, entry: str) -> None:
    label, minimum = entry.split()
    key, value = label.split("=")
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": f"{key}-{value}", "namespace": at.on.namespace},
        "spec": {"minAvailable": int(minimum.partition("=")[2]), "selector": {"matchLabels": {key: value}}},
    }
    plane.apply(json.dumps(budget))


async def _make_all(at: Teams, text: str, *, apart_s: float = 0.0) -> list[str]:
    made: list[str] = []
    for number, entry in enumerate(_entries(text)):
        if number and apart_s:
            await anyio.sleep(apart_s)
        pods = await _of(at, entry)
        await at.on.create(*pods)
        made += [each["metadata"]["name"] for each in pods]
        if apart_s:
            await at.on.running(len(made))
    return made


async def _of(at: Teams, entry: str) -> list[Pod]:
    name, queue, ask, *words = entry.split()
    count = next((int(word[1:]) for word in words if word[0] == "x" and word[1:].isdigit()), 0)
    said = dict(word.split("=") for word in words if "=" in word)
    if "gang" in said:
        group: Json = {
            "apiVersion": "/".join(GROUPS),
            "kind": "PodGroup",
            "metadata": {"name": name},
            "spec": {"minMember": int(said["gang"]), "queue": at.name(queue)},
        }
        if "prio" in said:
            group["spec"]["priorityClassName"] = f"room-{said['prio']}"
        await at.on.custom.create_namespaced_custom_object(*GROUPS, at.on.namespace, "podgroups", group)
    return [
        _pod(at, each, name, queue, ask, words, said)
        for each in ([f"{name}-{number}" for number in range(count)] if count else [name])
    ]


def _pod(at: Teams, name: str, group: str, queue: str, ask: str, words: list[str], said: dict[str, str]) -> Pod:
    made = at.of(queue, pod(name, gpus=int(ask) if ask.isdigit() else 0))
    meta, spec = made["metadata"], made["spec"]
    if ask.startswith("cpu="):
        spec["containers"][0]["resources"] = {"requests": {"cpu": ask.removeprefix("cpu=")}}
    elif ask.endswith("MiB"):
        meta["annotations"][names.GPU_MEMORY] = ask.removesuffix("MiB")
    elif not ask.isdigit():
        meta["annotations"][names.GPU_FRACTION] = ask
    if "fixed" in words:
        meta["labels"][names.PREEMPTIBILITY_LABEL] = "non-preemptible"
    if "gang" in said:
        meta["annotations"][names.POD_GROUP_NAME] = group
    if "prio" in said:
        spec["priorityClassName"] = f"room-{said['prio']}"
    if "app" in said:
        meta["labels"]["app"] = said["app"]
    if "grace" in said:
        spec["terminationGracePeriodSeconds"] = int(said["grace"])
    if "on" in said:
        term = {
            "matchFields": [{"key": "metadata.name", "operator": "In", "values": [f"{at.on.namespace}-{said['on']}"]}]
        }
        required = {"nodeSelectorTerms": [term]}
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return made


async def _is_over(at: Teams, story: Story, asked: list[str]) -> bool | None:
    pods = await at.on.pods()
    phases = {name: found["status"]["phase"] for name, found in pods.items() if not _is_going(found)}
    if len(phases) != len(pods):
        return None
    run = {name for name, phase in phases.items() if phase == "Running"}
    wait = phases.keys() - run
    counts = Counter(name.rpartition("-")[0] for name in run)
    named: set[str] = set()
    for word in story.then.split():
        name, star, count = word.partition("*")
        if star:
            if counts[name] != int(count):
                return None
            named |= {each for each in run if each.rpartition("-")[0] == name}
        else:
            named.add(name)
    return (run == named and wait <= set(asked) and all(scheduled_message(pods[name]) for name in wait)) or None


async def _seen(at: Teams) -> dict[str, str]:
    """Each pod's phase, or why it waits."""
    pods = await at.on.pods()
    return {name: scheduled_message(found) or found["status"]["phase"] for name, found in pods.items()}


def _is_going(found: Pod) -> bool:
    return "deletionTimestamp" in found["metadata"]
