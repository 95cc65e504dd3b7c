from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from runtime.processes.nodeagent import settings
from runtime.text import BadInput
from runtime.version import VERSION
from tests.cli.given import options

ROOT = Path(__file__).parents[3]
_LOADED = """
import sys
from cli.commands import program_parser
from cli.components import process_of
program_parser().parse_args(["node-agent"])
process_of("node-agent")
print(*{name.partition(".")[0] for name in sys.modules})
"""


def test_the_node_is_told_by_the_environment_as_the_chart_does() -> None:
    told = settings(options("node-agent", [], {"MOORAGE_NODE_AGENT_NODE_NAME": "node-a"}))
    assert (told.node, told.version) == ("node-a", VERSION)
    assert told.cap_all is False
    assert str(told.pod_resources_socket) == "/var/lib/kubelet/pod-resources/kubelet.sock"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--node-name: missing; give the name of the Node"),
        (
            ["--node-name=n", "--cap-all"],
            "--cap-all: nobody caps without a memory enforcer; give --memory-enforcer-socket",
        ),
        (["--node-name=n", "--compat-metrics=hami"], "--compat-metrics: only a memory enforcer measures use"),
        (["--node-name=n", "--compat-metrics=hami, dcgm"], "--compat-metrics dcgm: allowed are hami and metagpu"),
        (
            ["--node-name=n", "--tenant-view=/v"],
            "--tenant-view: use is known from a memory enforcer; give --memory-enforcer-socket",
        ),
        (
            ["--node-name=n", "--memory-enforcer-socket=/w", f"--tenant-view=/{'v' * 60}"],
            "--tenant-view: 61 bytes; use a path of 58",
        ),
        (["--node-name=n", "--hami-core=libvgpu.so"], "--hami-core libvgpu.so: containers mount it; give an absolute"),
        (["--node-name=n", "--hami-core-seen-at=/host/l.so"], "--hami-core-seen-at: there is no library; give"),
        (
            ["--node-name=n", "--hami-core=/l.so", "--remove-limits"],
            "--remove-limits: --hami-core makes them; give one",
        ),
        (["--node-name=n", "--mps-pipes=mps"], "--mps-pipes mps: containers mount it; give an absolute path"),
        (
            ["--node-name=n", "--mps-daemon=/k", "--hami-core=/l.so"],
            "--mps-daemon: a tenant is limited by one back end",
        ),
        (["--node-name=n", "--limits=limits"], "--limits limits: containers mount it; give an absolute path"),
        (["--node-name=n", "--traces-endpoint=http://otel:4318"], "--traces-endpoint: the node agent sends no traces"),
    ],
)
def test_what_the_agent_can_not_do_without_and_does_not_do_is_refused(arguments: list[str], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        settings(options("node-agent", arguments))


def test_tenants_have_no_sockets_unless_that_is_asked_for() -> None:
    assert settings(options("node-agent", ["--node-name=n"])).tenant_view is None
    told = settings(
        options("node-agent", ["--node-name=n", "--memory-enforcer-socket=/w", "--tenant-view=/run/moorage/view"])
    )
    assert (str(told.tenant_view), str(told.tenant_view_cdi)) == ("/run/moorage/view", "/var/run/cdi")


def test_tenants_are_not_limited_by_mps_unless_that_is_asked_for() -> None:
    assert settings(options("node-agent", ["--node-name=n"])).mps_daemon is None
    told = settings(options("node-agent", ["--node-name=n", "--mps-daemon=/run/k.sock"]))
    assert (told.mps_daemon, told.mps_pipes) == (Path("/run/k.sock"), Path("/run/moorage/mps"))


def test_tenants_are_not_limited_by_a_library_unless_that_is_asked_for() -> None:
    assert settings(options("node-agent", ["--node-name=n"])).hami_core is None
    told = settings(options("node-agent", ["--node-name=n", "--hami-core=/opt/libvgpu.so"]))
    assert (told.hami_core, told.limits, told.limits_cdi) == (
        Path("/opt/libvgpu.so"),
        Path("/var/lib/moorage/limits"),
        Path("/var/run/cdi"),
    )
    assert (told.hami_core_seen_at, told.remove_limits) == (None, False)
    assert settings(options("node-agent", ["--node-name=n", "--remove-limits"])).remove_limits


def test_the_device_plugin_is_off_unless_it_is_asked_for() -> None:
    assert options("node-agent", []).device_plugin == "off"
    assert options("node-agent", ["--device-plugin=own"]).device_plugin == "own"
    with pytest.raises(SystemExit):
        options("node-agent", ["--device-plugin=nvidia"])


@pytest.mark.thorough
def test_it_loads_no_other_component_and_no_driver() -> None:
    """One runs on each node: 50 MiB, where all of them and pynvml took 66."""
    done = subprocess.run(
        [sys.executable, "-c", _LOADED], cwd=ROOT, capture_output=True, text=True, check=True, timeout=120
    )
    others = {"scheduler", "binder", "podgrouper", "admission", "simulator"}
    others |= {"numpy", "pynvml", "google", "cryptography"}
    assert set(done.stdout.split()) & others == set()
