"""A driver of ResourceClaims for emulated GPUs, over kubelet's real API (DRA v1).

``python -m tools.node.dradriver GPUS --node NAME --kubeconfig FILE`` publishes the node's claimable devices
(tools/node/gpus.py) as a ResourceSlice, registers with each kubelet, and prepares claims. Messages are a driver's side
only, with the field numbers of k8s.io/kubelet/pkg/apis/dra/v1 and pluginregistration/v1. Reading raises
wire.protobuf.Malformed.
"""

from __future__ import annotations

import argparse
import base64
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc

from tools.node import cdi, gpus
from tools.rest import Rest, RestError
from wire.protobuf import integers, message, parts, strings, text, texts

#: kubelet looks here for sockets of plug-ins, and registers what answers.
REGISTRY: Final = "/var/lib/kubelet/plugins_registry"
REGISTRATION: Final = "pluginregistration.Registration"
SERVICE: Final = "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
#: The kind of plug-in, and the service's name as kubelet wants it to be offered.
_KIND, _VERSION = "DRAPlugin", "v1.DRAPlugin"
#: An empty message.
NOTHING: Final = b""


def plugin_info(driver: str, endpoint: str) -> bytes:
    """PluginInfo: a driver's name and the path of the socket where it serves SERVICE."""
    return text(1, _KIND) + text(2, driver) + text(3, endpoint) + texts(4, (_VERSION,))


@dataclass(frozen=True, slots=True)
class Status:
    """RegistrationStatus: whether kubelet has taken the driver; if not, why."""

    is_registered: bool
    error: str = ""

    @classmethod
    def decode(cls, content: bytes) -> Status:
        """Read it."""
        return cls(any(integers(content, 1)), "".join(strings(content, 2)))


@dataclass(frozen=True, slots=True)
class Claim:
    """A ResourceClaim by which kubelet asks."""

    namespace: str
    uid: str
    name: str

    @classmethod
    def decode_all(cls, request: bytes) -> tuple[Claim, ...]:
        """Read the claims of NodePrepareResourcesRequest or NodeUnprepareResourcesRequest."""
        return tuple(cls(*("".join(strings(part, number)) for number in (1, 2, 3))) for part in parts(request, 1))


@dataclass(frozen=True, slots=True)
class Prepared:
    """A device of a claim, as it was prepared; ``cdi``: its names in CDI files."""

    requests: Sequence[str]
    pool: str
    device: str
    cdi: Sequence[str]

    def encode(self) -> bytes:
        """Its bytes."""
        return texts(1, self.requests) + text(2, self.pool) + text(3, self.device) + texts(4, self.cdi)


def prepared(answers: Mapping[str, Sequence[Prepared] | str]) -> bytes:
    """NodePrepareResourcesResponse: for each claim's UID its devices, or why it could not be prepared."""
    return _by_uid(
        {
            uid: text(2, answer) if isinstance(answer, str) else b"".join(message(1, each.encode()) for each in answer)
            for uid, answer in answers.items()
        }
    )


def unprepared(uids: Sequence[str]) -> bytes:
    """NodeUnprepareResourcesResponse: these claims have been given back."""
    return _by_uid(dict.fromkeys(uids, NOTHING))


def _by_uid(answers: Mapping[str, bytes]) -> bytes:
    return b"".join(message(1, text(1, uid) + message(2, answer)) for uid, answer in answers.items())


NAME: Final = "gpu.moorage.test"
#: Device class and CDI kind.
KIND: Final = f"{NAME}/device"
REFUSALS: Final = "refusals"
SHARABLE: Final = "sharable"
_RESOURCES: Final = "/apis/resource.k8s.io/v1"
_SOCKETS: Final = Path("/var/lib/kubelet/plugins") / NAME
#: kubelet deletes the slices of a driver that it has not seen for a while.
_PUBLISH_EVERY_S: Final = 1.0
_WORKERS: Final = 4


class Driver:
    """What kubelet calls. ``machine``: the folder of GPUs; ``folder``: that of CDI files; ``read``: GET of a path.

    A CDI file for each claim gives its devices a variable ``CLAIMED_GPU_N`` and a file in gpus.CLAIMED. These files are
    also its notes, so it goes on where its last life has ended; a device that another claim has is refused. Where the
    folder has a file ``sharable``, several claims may have a device at once. A number in the file ``refusals`` of the
    folder is how many times it refuses to prepare.
    """

    def __init__(self, machine: Path, folder: Path, read: Callable[[str], dict[str, Any]]) -> None:
        self._machine = machine
        self._folder = folder
        self._read = read

    def register(self, status: Status) -> None:
        """Hear from kubelet whether it has taken the driver."""
        _say("is registered" if status.is_registered else f"is not registered: {status.error}")

    def prepare(self, claims: Sequence[Claim]) -> dict[str, Sequence[Prepared] | str]:
        """Prepare claims, or say why not. A claim may be prepared already."""
        answers = {claim.uid: self._prepared(claim) for claim in claims}
        for claim in claims:
            if isinstance(why := answers[claim.uid], str):
                _say(f"can't prepare {claim.namespace}/{claim.name}: {why}")
        return answers

    def unprepare(self, claims: Sequence[Claim]) -> list[str]:
        """Give back what claims have, if they have something."""
        for claim in claims:
            self._file(claim.uid).unlink(missing_ok=True)
            _say(f"has unprepared {claim.namespace}/{claim.name}")
        return [claim.uid for claim in claims]

    def _prepared(self, claim: Claim) -> Sequence[Prepared] | str:
        if self._is_to_refuse():
            return "the driver refuses, as it was told to"
        path = f"{_RESOURCES}/namespaces/{claim.namespace}/resourceclaims/{claim.name}"
        try:
            found = self._read(path)
        except (RestError, OSError) as error:
            return f"{path}: {error}"
        if found["metadata"]["uid"] != claim.uid:
            return f"{claim.name} is another claim now: {found['metadata']['uid']}"
        allocation = found.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())
        results = [result for result in allocation if result["driver"] == NAME]
        return self._written(claim, results)

    def _written(self, claim: Claim, results: Sequence[Any]) -> Sequence[Prepared] | str:
        """Write the CDI file of a claim."""
        uuids = devices(self._machine)
        wanted = {str(result["device"]) for result in results}
        if unknown := wanted - uuids.keys():
            return f"there is no device {', '.join(sorted(unknown))}"
        whole = {str(result["device"]) for result in results if not result.get("shareID")}
        if taken := whole & self._taken_by_others(claim.uid):
            return f"another claim has {', '.join(sorted(taken))}"
        edits = {f"{claim.uid}.{device}": _edits(device, uuids[device]) for device in sorted(wanted)}
        self._folder.mkdir(parents=True, exist_ok=True)
        cdi.write(self._file(claim.uid), cdi.Spec(KIND, edits, {}))
        _say(f"has prepared {claim.namespace}/{claim.name}: {', '.join(sorted(wanted))}")
        return [
            Prepared(
                (result["request"],), result["pool"], result["device"], (f"{KIND}={claim.uid}.{result['device']}",)
            )
            for result in results
        ]

    def _taken_by_others(self, uid: str) -> set[str]:
        mine = self._file(uid)
        others = [cdi.Spec.decode(path.read_text()) for path in self._folder.glob(f"{NAME}_*.json") if path != mine]
        return {name.partition(".")[2] for spec in others for name in spec.devices}

    def _is_to_refuse(self) -> bool:
        path = self._machine / REFUSALS
        left = int(path.read_text()) if path.exists() else 0
        if left:
            path.write_text(str(left - 1))
        return left > 0

    def _file(self, uid: str) -> Path:
        return self._folder / f"{NAME}_{uid}.json"

    def services(self) -> list[grpc.GenericRpcHandler]:
        """Its methods, for a server. Bytes go in and out."""

        def noted(request: bytes, _context: Any) -> bytes:
            self.register(Status.decode(request))
            return NOTHING

        registration = {
            "GetInfo": lambda _request, _context: plugin_info(NAME, str(_SOCKETS / "dra.sock")),
            "NotifyRegistrationStatus": noted,
        }
        driver = {
            "NodePrepareResources": lambda request, _: prepared(self.prepare(Claim.decode_all(request))),
            "NodeUnprepareResources": lambda request, _: unprepared(self.unprepare(Claim.decode_all(request))),
        }
        return [
            grpc.method_handlers_generic_handler(
                service, {name: grpc.unary_unary_rpc_method_handler(method) for name, method in methods.items()}
            )
            for service, methods in ((REGISTRATION, registration), (SERVICE, driver))
        ]


def devices(machine: Path) -> dict[str, str]:
    """Return the devices for claims: name in the slice -> UUID."""
    claimable = gpus.read_claimable(machine)
    lines = gpus.read_machine(machine).items()
    return {f"gpu-{line.split()[4]}": uuid for uuid, line in lines if uuid in claimable}


def resource_slice(machine: Path, node: str) -> dict[str, Any]:
    """Return the slice of a node: a pool of its own, of one generation."""
    lines = gpus.read_machine(machine)
    shared = {"allowMultipleAllocations": True} if (machine / SHARABLE).exists() else {}
    entries = [
        {
            "name": name,
            **shared,
            "attributes": {"uuid": {"string": uuid}, "model": {"string": lines[uuid].split()[2]}},
            "capacity": {"memory": {"value": f"{lines[uuid].split()[3]}Mi"}},
        }
        for name, uuid in devices(machine).items()
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-{NAME}"},
        "spec": {"driver": NAME, "nodeName": node, "pool": pool, "devices": entries},
    }


def publish(api: Rest, machine: Path, node: str) -> bool:
    """Create the slice if it is not there. Returns whether it was created. Raises RestError, OSError."""
    listed = api.call("GET", f"{_RESOURCES}/resourceslices?fieldSelector=spec.nodeName={node},spec.driver={NAME}")
    if listed["items"]:
        return False
    api.call("POST", f"{_RESOURCES}/resourceslices", resource_slice(machine, node))
    return True


def _edits(device: str, uuid: str) -> cdi.Edits:
    variable = f"CLAIMED_{device.upper().replace('-', '_')}={uuid}"
    mount = {"hostPath": "/dev/null", "containerPath": f"{gpus.CLAIMED}/{uuid}", "options": ["bind", "ro"]}
    return {"env": [variable], "mounts": [mount]}


def _api(kubeconfig: Path) -> Rest:
    read = json.loads(kubeconfig.read_text())
    cluster, user = read["clusters"][0]["cluster"], read["users"][0]["user"]
    return Rest(cluster["server"], base64.b64decode(cluster["certificate-authority-data"]).decode(), user["token"])


def _serve(driver: Driver) -> grpc.Server:
    registry = Path(REGISTRY)
    sockets = [_SOCKETS / "dra.sock", registry / f"{NAME}-reg.sock"]
    server = grpc.server(ThreadPoolExecutor(_WORKERS), handlers=driver.services())
    # That of registration is the last: kubelet calls as soon as it is there.
    for socket in sockets:
        socket.parent.mkdir(parents=True, exist_ok=True)
        socket.unlink(missing_ok=True)
        server.add_insecure_port(f"unix://{socket}")
    server.start()
    return server


def _say(what: str) -> None:
    print(f"driver {what}", flush=True)


def main(arguments: list[str]) -> None:
    """Read the command line and serve until killed."""
    parser = argparse.ArgumentParser(prog="python -m tools.node.dradriver")
    parser.add_argument("machine", type=Path, metavar="GPUS")
    parser.add_argument("--node", required=True)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    given = parser.parse_args(arguments)
    api = _api(given.kubeconfig)
    server = _serve(Driver(given.machine, Path(cdi.FOLDER), lambda path: api.call("GET", path)))
    while True:
        try:
            if publish(api, given.machine, given.node):
                _say("has published its devices")
        except (RestError, OSError) as error:
            _say(f"can't publish: {error}")
        server.wait_for_termination(_PUBLISH_EVERY_S)


if __name__ == "__main__":
    main(sys.argv[1:])
