"""A real node of which some GPUs are for ResourceClaims: with a driver of them, and a runtime that knows CDI."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from typing_extensions import override

from tools.cluster.plane import ControlPlane
from tools.node import cdi, dradriver, gpus, settings
from tools.node.node import Node, python

CDI_PROXY: Final = "cdi-proxy"
DRIVER: Final = "dra-driver"
#: In the place of containerd's own, for kubelet.
_SOCKET: Final = "/run/containerd/cdi.sock"


class ClaimNode(Node):
    """``claimable``: how many of its GPUs, the last ones, the driver offers and the device plug-in does not.

    Where it offers all of them there is no device plug-in. ``sharable``: several claims may have one of them at once.
    ``kill`` and ``start_again`` know the DRIVER as they know kubelet.
    """

    def __init__(
        self, plane: ControlPlane, name: str, *, claimable: int, sharable: bool = False, **of_a_node: Any
    ) -> None:
        super().__init__(plane, name, **of_a_node)
        self._is_sharable = sharable
        self.claimable = [gpu.uuid for gpu in self.gpus[len(self.gpus) - claimable :]]

    @property
    @override
    def plugged(self) -> int:
        return len(self.gpus) - len(self.claimable)

    def refuse(self, times: int) -> None:
        """Have the driver refuse to prepare claims that many times."""
        (self.folder / dradriver.REFUSALS).write_text(str(times))

    def prepared(self) -> set[str]:
        """The UIDs of claims that are prepared, by the driver's own notes."""
        files = self.run("sh", "-c", f"cd {cdi.FOLDER} 2>/dev/null && ls").split()
        return {file.partition("_")[2].removesuffix(".json") for file in files if file.endswith(".json")}

    def driver_log(self) -> str:
        """What the driver's present life has written."""
        return (self.folder / f"{DRIVER}.log").read_text()

    @override
    def _write_files(self, folder: Path, library: Path) -> None:
        super()._write_files(folder, library)
        gpus.write_claimable(folder, self.claimable)
        if self._is_sharable:
            (folder / dradriver.SHARABLE).touch()
        path = folder / "kubelet.yaml"
        config = json.loads(path.read_text())
        config["containerRuntimeEndpoint"] = f"unix://{_SOCKET}"
        # After a failed preparation kubelet tries again with its next look at the pod: after a minute by default.
        config["syncFrequency"] = "2s"
        path.write_text(json.dumps(config, indent=1))

    @override
    def _command_lines(self, programs: Path) -> dict[str, list[str]]:
        folder = self.folder
        driver = [str(folder), "--node", self.name, "--kubeconfig", str(folder / "kubeconfig")]
        return {
            **super()._command_lines(programs),
            CDI_PROXY: python(cdi.__name__, _SOCKET, settings.RUNTIME_SOCKET),
            DRIVER: python(dradriver.__name__, *driver),
        }

    @override
    def _before_kubelet(self) -> None:
        family = self._running()
        proxy = family.start(CDI_PROXY, self._inside(self._programs[CDI_PROXY]))
        self._wait_until(lambda: "ready" in proxy.log.read_text(), "the runtime that knows CDI")
        family.start(DRIVER, self._inside(self._programs[DRIVER]))
