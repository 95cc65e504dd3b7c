"""The pods of the documents on one machine, and what becomes of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from tests.node.documents.apps import Found, documents, fitted, found
from tests.node.documents.asked import Name
from tests.node.pods import Machine, Pod, eventually
from wire import names


class Stage:
    """A machine whose cluster has the namespaces ``spaces``. ``waiting``: pods that are not created yet."""

    def __init__(self, machine: Machine, spaces: Iterable[str]) -> None:
        self._machine = machine
        self._pods = {(space, name): pod for space in spaces for name, pod in documents(space).items()}
        self.waiting = set(self._pods)

    def create(self, *wanted: Name) -> None:
        """Create pods of the documents."""
        for space, name in wanted:
            self._make(space, self._pods[space, name])
            self.waiting.remove((space, name))

    def create_beside(self, wanted: Name, resource: str, count: int) -> None:
        """Create a pod that asks for so much of one resource."""
        space, name = wanted
        container = {"name": "main", "resources": {"limits": {resource: count}}}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}
        self._make(space, fitted(pod))

    def _make(self, space: str, pod: Pod) -> None:
        """Create a pod as soon as its namespace adopts such."""
        path = f"/api/v1/namespaces/{space}/pods"
        rest = self._machine.plane.rest()

        def is_adopted() -> bool | None:
            code, answer = rest.send("POST", f"{path}?dryRun=All", json.dumps(pod).encode())
            return (code == 201 and json.loads(answer)["spec"]["schedulerName"] == names.SCHEDULER_NAME) or None

        eventually(is_adopted, lambda: f"{space} to adopt")
        rest.call("POST", path, pod)

    def remove(self, wanted: Name) -> None:
        """Delete a pod."""
        space, name = wanted
        self._machine.plane.rest().call("DELETE", f"/api/v1/namespaces/{space}/pods/{name}")

    def says_why_it_waits(self, wanted: Name) -> str:
        """Wait until a pod is said to be unschedulable, and return the reason."""
        condition = eventually(lambda: self._scheduled(wanted), lambda: f"{wanted} to say why it waits")
        assert condition["status"] == "False", self._pod(wanted)
        return str(condition["message"])

    def first_bound(self, wanted: Sequence[Name]) -> Name:
        """Wait until all but one of the pods wait, and return that one."""

        def decided() -> list[Name] | None:
            conditions = [self._scheduled(one) for one in wanted]
            return (
                [
                    one
                    for one, condition in zip(wanted, conditions, strict=True)
                    if condition is not None and condition["status"] == "True"
                ]
                if all(conditions)
                else None
            )

        (bound,) = eventually(decided, lambda: f"{wanted} to be decided about")
        return bound

    def run(self, *wanted: Name) -> dict[Name, dict[str, Found]]:
        """Wait until the apps of pods have said what they found."""

        def said(one: Name) -> dict[str, Found] | None:
            pod = self._pod(one)
            by_now = found(self._machine, pod)
            containers = (*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"])
            return by_now if len(by_now) == len(containers) else None

        def waited(one: Name) -> str:
            return f"{one} to run: {self._pod(one)['status']}"

        return {one: eventually(partial(said, one), partial(waited, one)) for one in wanted}

    def taint(self, taints: Sequence[Mapping[str, str]]) -> None:
        """Change the node's taints."""
        self._machine.plane.kubectl(
            "patch", "node", self._machine.node.name, "-p", json.dumps({"spec": {"taints": taints}})
        )

    def _pod(self, wanted: Name) -> Pod:
        space, name = wanted
        return self._machine.get(name, space)

    def _scheduled(self, wanted: Name) -> dict[str, str] | None:
        """What is said of a pod's scheduling; None: nothing yet."""
        conditions = self._pod(wanted)["status"].get("conditions", ())
        return next((one for one in conditions if one["type"] == "PodScheduled"), None)
