"""One real node on this machine: kubelet, containerd and runc of its own, with emulated GPUs.

Each node has namespaces of its own (mounts, network, processes, IPC) whose first process is tools/node/init.py. What
starts in them ends with it, and nothing stays mounted; so a node can be ended, or "rebooted", at any
moment, and several run side by side. Programs are started from outside through nsenter(1) and killed one by one like
those of a control plane. The images that it starts with, our reservation image (tools/images) and the pause program,
are archives in our cache, each made once for what it is made of.

``with Node(plane, "node-a", gpus=4) as node:`` is Ready and has its GPUs. The control plane must know the name
(``ControlPlane(nodes=["node-a"])``). ``tools.node.debian.missing()`` says whether this machine can have one.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from nodeagent.kubeletapi.deviceplugin import FOLDER as _PLUGIN_FOLDER
from nodeagent.kubeletapi.deviceplugin import KUBELET_SOCKET
from tools.cluster.plane import ControlPlane
from tools.controlplane import KUBE_PROXY, KUBELET, ensure
from tools.goprogram import cache_root
from tools.guard import cgroup_folders, remove_cgroup
from tools.images import build, layers
from tools.images.layers import ImageSettings, pack
from tools.node import gpus as _gpus
from tools.node import settings
from tools.node.settings import PAUSE_IMAGE, identity, registered
from tools.nvml_stub import build as nvml_stub
from tools.processes import Family, wait_until

#: What decides, beside the contents, how an archive comes out.
_RECIPES = (Path(__file__), Path(layers.__file__))


def reservation_archive() -> Path:
    """Return the archive of the reservation image; its Python serves as a user's image, too.

    Raises tools.node.debian.Unavailable when a package can't be had.
    """
    return build.archive("reservation")


def pause_archive() -> Path:
    """Return the archive of the image that holds pods' namespaces. Raises subprocess.CalledProcessError."""
    source = Path(__file__).with_name("pause.c")
    settings = ImageSettings(name=PAUSE_IMAGE, command=["/pause"])

    def compile_into(root: Path) -> None:
        flags = ("-std=gnu11", "-Os", "-Wall", "-Wextra", "-Werror", "-static", "-s")
        subprocess.run([os.environ.get("CC", "cc"), *flags, "-o", root / "pause", source], check=True)

    return _cached("pause", [source, *_RECIPES], compile_into, settings)


def _cached(name: str, sources: Sequence[Path], fill: Callable[[Path], None], settings: ImageSettings) -> Path:
    digest = hashlib.sha256(b"".join(hashlib.sha256(path.read_bytes()).digest() for path in sources))
    folder = build.default_store()
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / f"{name}-{digest.hexdigest()[:12]}.tar"
    if not archive.exists():
        with tempfile.TemporaryDirectory(dir=folder, prefix=".build-") as scratch:
            root = Path(scratch) / "root"
            root.mkdir(mode=0o755)
            fill(root)
            made = Path(scratch) / archive.name
            pack(root, settings, made)
            made.replace(archive)
    return archive


CONTAINERD, PLUGIN = "containerd", "device-plugin"
#: Moorage's own, in the place of the emulated one.
OWN_PLUGIN = "own-device-plugin"
#: Asks the node's containerd about what kubelet made.
CTR = ("ctr", "--address", settings.RUNTIME_SOCKET, "--namespace", "k8s.io")
_NAMESPACES, _PASSAGE = "namespaces", "passage"
_ROOT = Path(__file__).parents[2]
#: The API server's Service: the first address of the control plane's range (tools/flags.py).
_SERVICE = ("10.96.0.1", 443)
#: kubelet's words.
_REGISTERED = "Successfully registered node"
#: containerd's words. Its API answers some milliseconds before the part for kubelets does, and kubelet ends meanwhile.
_SERVES_KUBELETS = "Start streaming server"
_UP_WITHIN_S = 120.0
_CAP_SYS_RESOURCE = 24


class Node:
    """One machine: ``start`` it, ``kill`` and ``start_again`` its programs, ``reboot`` it, ``stop`` it.

    ``gpus``: how many emulated devices it has, or which. ``archives``: images that are imported into it.
    ``default_runtime``: ``nvidia``, as many GPU nodes have it, reads ``NVIDIA_VISIBLE_DEVICES`` of every container.
    Of a control plane with ``egress`` the node is the API server's way into the cluster, and has a kube-proxy, which
    leads to Services.
    """

    def __init__(
        self,
        plane: ControlPlane,
        name: str,
        *,
        gpus: int | Sequence[_gpus.Gpu] = 0,
        max_pods: int = 110,
        labels: Mapping[str, str] | None = None,
        archives: Sequence[Path] | None = None,
        default_runtime: str = "runc",
    ) -> None:
        self.name = name
        self.gpus = _gpus.made_up(name, gpus) if isinstance(gpus, int) else tuple(gpus)
        self._plane = plane
        self._max_pods = max_pods
        self._labels = dict(labels or {})
        self._archives = archives
        self._default_runtime = default_runtime
        self._family: Family | None = None
        self._init_pid = 0
        self._cgroup = ""
        self._programs: dict[str, list[str]] = {}
        #: Seconds that each part of the last start took.
        self.took_s: dict[str, float] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    @property
    def folder(self) -> Path:
        """Where all files and logs of the node are. Raises RuntimeError when not started."""
        return self._running().folder

    @property
    def address(self) -> str:
        """The node's address, in its own network."""
        return "10.97.0.1"

    @property
    def plugged(self) -> int:
        """How many of the devices the device plug-in offers."""
        return len(self.gpus)

    def start(self) -> None:
        """Start everything, and return once the node is Ready and has its GPUs.

        Raises ProcessDied when a program ends, TimeoutError when the node isn't ready within two minutes.
        """
        if self._family is not None:
            raise RuntimeError(f"node {self.name} is running")
        programs = ensure(wanted=(KUBELET, KUBE_PROXY) if self._plane.egress_path else (KUBELET,))
        library = nvml_stub.build(cache_root(os.environ)) / nvml_stub.LIBRARY
        archives = self._archives
        if archives is None:
            archives = [pause_archive(), reservation_archive()]
        folder = Path(tempfile.mkdtemp(prefix="moorage-node-"))
        folder.chmod(0o755)
        self._family = Family(folder)
        try:
            self._cgroup = f"moorage-{secrets.token_hex(4)}"
            self._family.add_cgroup(self._cgroup)
            self._write_files(folder, library)
            self._programs = self._command_lines(programs)
            self._boot(archives)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End everything and remove the folder; the Node object stays. Does nothing when not started."""
        if self._family is None:
            return
        family, self._family = self._family, None
        family.stop()
        shutil.rmtree(family.folder)

    def reboot(self, *, plugin: bool = True) -> None:
        """End everything at once and start again with what is on the disk, until the node is Ready again.

        Without the ``plugin`` kubelet serves, and has no devices until that is started, too (``start_again``).
        """
        family = self._running()
        for child in reversed(family.children):
            family.kill(child)
        # No machine boots with control groups of its last life; kubelet waits seconds for each container of them.
        remove_cgroup(self._cgroup)
        for folder in cgroup_folders(self._cgroup):
            folder.mkdir()
        self._boot((), plugin=plugin)

    def kill(self, program: str) -> None:
        """End kubelet, containerd or the device plug-in as a crash does; containers go on."""
        family = self._running()
        family.kill(next(child for child in family.children if child.name == program))

    def start_again(self, program: str) -> None:
        """Start a killed program, and return before it serves (``wait_until_ready``)."""
        self._running().start(program, self._inside(self._programs[program]))

    def advertise(self, resource: str) -> str:
        """Have one more device plug-in offer the devices under another name. Returns what to ``kill`` to end it."""
        program = f"{PLUGIN}-{resource.replace('/', '-')}"
        self._programs[program] = [*self._programs[PLUGIN], "--resource", resource]
        self.start_again(program)
        return program

    def start_own_plugin(self, *options: str) -> None:
        """Start Moorage's own device plug-in (tools/node/ownplugin.py); ``kill`` ends it by the name OWN_PLUGIN."""
        paths = [f"LD_LIBRARY_PATH={self.folder}", f"FAKE_NVML_STATE={self.folder / _gpus.MACHINE}"]
        self._programs[OWN_PLUGIN] = python("tools.node.ownplugin", str(self.folder), *options, variables=paths)
        self.start_again(OWN_PLUGIN)

    def check(self) -> None:
        """Raise ProcessDied if a program has ended on its own."""
        self._running().check()

    def run(self, *command: str) -> str:
        """Run a command on the node and return its output. Raises subprocess.CalledProcessError."""
        done = subprocess.run(self._inside(command), capture_output=True, text=True, check=False)
        if done.returncode:
            failed = subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
            failed.add_note(done.stderr.strip())
            raise failed
        return done.stdout

    def set_gpus(self, devices: Sequence[_gpus.Gpu]) -> None:
        """Change which devices the machine has; containers that run keep what they see."""
        self.gpus = tuple(devices)
        _gpus.write_machine(self.folder, devices)

    def add_events(self, *events: str) -> None:
        """Have the driver of our own device plug-in report XIDs, each ``UUID XID`` once; others read devices alone."""
        _gpus.add_statements(self.folder, [f"event {event}" for event in events])

    def set_unhealthy(self, uuids: Collection[str]) -> None:
        """Change which devices are ill."""
        _gpus.write_unhealthy(self.folder, uuids)

    def lose_devices(self) -> None:
        """Remove kubelet's notes of which pod was given which device; it reads them when it starts."""
        (self.folder / "kubelet" / "device-plugins" / "kubelet_internal_checkpoint").unlink()

    def output(self, namespace: str, pod: str, container: str, *, uid: str = "*") -> str:
        """What the newest life of a container has written, without the runtime's marks; "" before it has begun.

        ``uid`` tells a pod from those that had its name before: their logs stay for a while. A line that the runtime
        has not written to its end is left out.
        """
        logs = (self.folder / "log" / "pods").glob(f"{namespace}_{pod}_{uid}/{container}/*.log")
        newest = max(logs, key=lambda path: path.stat().st_mtime_ns, default=None)
        whole, _, _ = newest.read_text().rpartition("\n") if newest else ("", "", "")
        lines = whole.splitlines()
        return "".join(line.split(" ", 3)[3] + "\n" for line in lines)

    def status(self) -> dict[str, Any]:
        """The Node object as the API server has it, {} before there is one."""
        code, body = self._plane.rest().send("GET", f"/api/v1/nodes/{self.name}")
        return dict(json.loads(body)) if code == 200 else {}

    def wait_until_ready(self) -> None:
        """Wait until this life of kubelet has told that the node is Ready and has its GPUs.

        Raises ProcessDied, TimeoutError.
        """
        self._wait_until(self._containerd_serves, "containerd to serve")
        what = f"node {self.name} to be ready with {self.plugged} GPUs"
        has_plugin = self._has_its_plugin if self.plugged else lambda: True
        self._wait_until(lambda: self._is_registered() and has_plugin() and self.is_ready(), what)

    def is_ready(self) -> bool:
        """Whether the node says that it is ready, and all its devices are allocatable."""
        status = self.status().get("status", {})
        ready = any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions", ()))
        return ready and int(status["allocatable"].get("nvidia.com/gpu", 0)) == self.plugged

    def _boot(self, archives: Sequence[Path], *, plugin: bool = True) -> None:
        """Make the namespaces, and start all programs in them; what is on the API server is heard of last.

        So kubelet has its devices when it hears of the pods: on a reboot it would refuse such as have devices, if the
        device plug-in came later.
        """
        began = time.monotonic()
        family = self._running()
        self._enter_namespaces()
        passage = self._connect()
        # Who calls meanwhile waits. Refused, the parts of kubelet would try again at different times, and those that
        # come late fail containers.
        os.killpg(passage, signal.SIGSTOP)
        self._note("namespaces", began)
        family.start(CONTAINERD, self._inside(self._programs[CONTAINERD]))
        self._wait_until(self._containerd_serves, "containerd to serve")
        self._note("containerd", began)
        for archive in archives:
            self.run(*CTR, "images", "import", str(archive))
        self._note("images", began)
        self._before_kubelet()
        family.start(KUBELET, self._inside(self._programs[KUBELET]))
        if self.plugged and plugin:
            family.start(PLUGIN, self._inside(self._programs[PLUGIN]))
            self._wait_until(self._has_its_plugin, "the device plug-in to be registered")
            self._note("devices", began)
        os.killpg(passage, signal.SIGCONT)
        if self._plane.egress_path:
            family.start(KUBE_PROXY, self._inside(self._programs[KUBE_PROXY]))
        if plugin:
            self.wait_until_ready()
        self._note("ready", began)

    def _before_kubelet(self) -> None:
        """Start what kubelet finds beside containerd: nothing, on most nodes."""

    def _connect(self) -> int:
        """Give the machine its way to the API server. Returns the process group that it goes through."""
        listen = [f"127.0.0.1:{self._port}", f"{_SERVICE[0]}:{_SERVICE[1]}"]
        script, back = str(Path(__file__).with_name("netns_proxy.py")), self._plane.egress_path
        if back is not None:
            back.unlink(missing_ok=True)
        command = [sys.executable, "-I", script, str(self._init_pid), self._port, str(back or "-")]
        passage = self._running().start(_PASSAGE, [*command, *listen])
        self._wait_until(lambda: "ready" in passage.log.read_text(), "the way to the API server")
        return passage.process.pid

    def _enter_namespaces(self) -> None:
        family = self._running()
        flags = ["--mount", "--net", "--pid", "--ipc", "--fork", "--mount-proc", "--kill-child"]
        script = [sys.executable, "-I", "-S", str(Path(__file__).with_name("init.py"))]
        child = family.start(_NAMESPACES, ["unshare", *flags, *script, str(family.folder), self.address, _SERVICE[0]])
        self._wait_until(lambda: "ready" in child.log.read_text(), "the node's namespaces")
        pid = child.process.pid
        self._init_pid = int(Path(f"/proc/{pid}/task/{pid}/children").read_text())

    def _is_registered(self) -> bool:
        """Whether this kubelet has found its Node object, which alone may still say what was true before."""
        return _REGISTERED in (self.folder / f"{KUBELET}.log").read_text()

    def _has_its_plugin(self) -> bool:
        """Whether the device plug-in is registered with this kubelet, and not one before it."""
        kubelet = identity(self.folder / "kubelet" / "device-plugins" / KUBELET_SOCKET)
        return kubelet is not None and registered(kubelet) in (self.folder / f"{PLUGIN}.log").read_text()

    def _containerd_serves(self) -> bool:
        if _SERVES_KUBELETS not in (self.folder / f"{CONTAINERD}.log").read_text():
            return False
        command = self._inside([*CTR, "version"])
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def _command_lines(self, programs: Path) -> dict[str, list[str]]:
        folder = self.folder
        flags = settings.kubelet_flags(name=self.name, address=self.address, folder=folder, labels=self._labels)
        return {
            CONTAINERD: ["containerd", "--config", str(folder / "containerd.toml")],
            KUBELET: [str(programs / KUBELET), *flags],
            KUBE_PROXY: [
                str(programs / KUBE_PROXY),
                *settings.kube_proxy_flags(name=self.name, kubeconfig=self._plane.proxy_kubeconfig_path),
            ],
            PLUGIN: python("tools.node.plugin", str(folder), "--folder", _PLUGIN_FOLDER),
        }

    def _inside(self, command: Sequence[str]) -> list[str]:
        flags = ["--mount", "--net", "--pid", "--ipc", f"--target={self._init_pid}"]
        return ["nsenter", *flags, "--", *command]

    def _write_files(self, folder: Path, library: Path) -> None:
        runtime = folder / "nvidia-container-runtime"
        gates = self._plane.feature_gates
        config = settings.kubelet(cgroup=self._cgroup, folder=folder, max_pods=self._max_pods, feature_gates=gates)
        (folder / "kubelet.yaml").write_text(json.dumps(config, indent=1))
        (folder / "containerd.toml").write_text(
            settings.containerd(
                folder=folder,
                nvidia_runtime=runtime,
                default_runtime=self._default_runtime,
                may_raise_scores=_may_raise_scores(),
            )
        )
        (folder / "cni-conf").mkdir()
        (folder / "cni-conf" / "10-pods.conflist").write_text(settings.cni("10.98.1.0/24"))
        (folder / "resolv.conf").touch()
        (folder / library.name).write_bytes(library.read_bytes())
        create = (
            f"PYTHONPATH={_ROOT} exec {sys.executable} -S -m tools.node.nvidia_runtime {folder} {folder / library.name}"
        )
        runtime.write_text(settings.nvidia_runtime(create=create, runc=shutil.which("runc") or "runc"))
        runtime.chmod(0o755)
        _gpus.write_machine(folder, self.gpus)
        _gpus.write_unhealthy(folder, ())
        self._plane.write_kubeconfig(folder / "kubeconfig", self._plane.node_token(self.name))

    @property
    def _port(self) -> str:
        return self._plane.url.rpartition(":")[2]

    def _note(self, part: str, began_s: float) -> None:
        self.took_s[part] = round(time.monotonic() - began_s, 2)

    def _running(self) -> Family:
        if self._family is None:
            raise RuntimeError(f"node {self.name} is not running")
        return self._family

    def _wait_until(self, ready: Callable[[], bool], what: str) -> None:
        wait_until(ready, self._running(), what, within_s=_UP_WITHIN_S)


def python(module: str, *arguments: str, variables: Sequence[str] = ()) -> list[str]:
    """Return the command line of a module of ours, with what can be imported here; ``variables``: ``NAME=VALUE``."""
    path = f"PYTHONPATH={':'.join([str(_ROOT), *sys.path])}"
    return ["env", path, *variables, sys.executable, "-m", module, *arguments]


def _may_raise_scores() -> bool:
    lines = Path("/proc/self/status").read_text().splitlines()
    effective = next(int(line.split()[1], 16) for line in lines if line.startswith("CapEff:"))
    return bool(effective >> _CAP_SYS_RESOURCE & 1)
