"""``kubectl moorage`` is to answer within 150 ms, and within 300 ms of CPU time where it reads a cluster.

Nearly all of that is what Python loads (bench/asking.py), so that is held here.
"""

from __future__ import annotations

import http.server
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from typing_extensions import override

from kube.client.clock import SystemClock
from wire.rfc3339 import rfc3339_micro

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[2]
EXAMPLE = "examples/01-fraction-pair.yaml"
SETTINGS = "examples/settings/dialects.yaml"
#: What talks to clusters, and what draws on terminals.
ELSEWHERE = frozenset({
    "admission", "aiohttp", "anyio", "asyncio", "binder", "cryptography", "kube", "kubernetes_asyncio", "logging",
    "numpy", "rich", "scheduler", "simulator",
})  # fmt: skip
#: What reads and translates pods.
READING = frozenset({"dataclasses", "gpu", "msgspec", "pathlib", "subprocess", "typing_extensions", "wire", "yaml"})
#: What lint asks about pods that are refused or never placed: no more of it than reads no clock and talks to nobody.
JUDGING = frozenset({"admission", "scheduler", "simulator"})
KUBECTL = "from cli.main import kubectl as program"
PROGRAM = "from cli.main import main as program"
COMPLETE = "from cli.completion import main as program"
PROBE = """
import atexit, sys
{program}
atexit.register(lambda: print(*sorted(sys.modules)))
program()
"""


def loaded(program: str, *arguments: str, whole: bool = False) -> tuple[list[str], frozenset[str]]:
    """What a program prints, and the packages that it has loaded when it ends; ``whole``: the modules."""
    command = [sys.executable, "-c", PROBE.format(program=program), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=180)
    *printed, modules = done.stdout.splitlines()
    return printed, frozenset(name if whole else name.partition(".")[0] for name in modules.split())


@pytest.mark.parametrize(
    ("program", "arguments", "begins"),
    [
        (KUBECTL, ["--help"], "usage: kubectl moorage"),
        (KUBECTL, ["inspect", "--help"], "usage: kubectl moorage inspect"),
        (KUBECTL, ["explain", "--help"], "usage: kubectl moorage explain"),
        (KUBECTL, ["translate", "--help"], "usage: kubectl moorage translate"),
        (KUBECTL, ["lint", "--help"], "usage: kubectl moorage lint"),
        (COMPLETE, ["tra"], "translate"),
        (COMPLETE, ["translate", "--to", "ha"], "hami"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_what_knows_only_the_options_loads_nothing_that_reads_or_talks(
    program: str, arguments: list[str], begins: str
) -> None:
    printed, packages = loaded(program, *arguments)
    assert printed[0].startswith(begins)
    assert "argparse" in packages
    assert not packages & (ELSEWHERE | READING)


@pytest.mark.parametrize("arguments", [["--help"], ["admin", "--help"]], ids=" ".join)
def test_the_list_of_commands_loads_no_module_of_a_command(arguments: list[str]) -> None:
    printed, packages = loaded(PROGRAM, *arguments)
    assert printed[0].startswith("usage: moorage")
    assert not packages & (ELSEWHERE | READING)


@pytest.mark.parametrize(
    ("arguments", "begins"),
    [
        (["translate", EXAMPLE], f"{EXAMPLE} document 1: Pod default/half-a"),
        (["translate", "-o", "json", "--to", "hami", EXAMPLE], "["),
        (["translate", "--dialects", SETTINGS, EXAMPLE], f"{EXAMPLE} document 1: Pod default/half-a"),
        (["lint", EXAMPLE], f"{EXAMPLE} document 1: Pod default/half-a: note: Queue examples"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_what_reads_manifests_loads_nothing_that_talks_to_clusters_or_draws(arguments: list[str], begins: str) -> None:
    printed, packages = loaded(KUBECTL, *arguments)
    assert printed[0].startswith(begins)
    assert {"gpu", "wire", "yaml"} <= packages
    judged = JUDGING if arguments[0] == "lint" else frozenset()
    assert packages & ELSEWHERE == judged


FROZEN = """
import atexit, gc, sys
from cli.main import {program}
atexit.register(lambda: print(gc.get_freeze_count()))
sys.exit({program}())
"""


@pytest.mark.parametrize("program", ["main", "kubectl"])
def test_a_program_ends_without_a_last_look_for_garbage(program: str) -> None:
    """It took 60 to 90 ms of CPU after ``inspect``."""
    command = [sys.executable, "-c", FROZEN.format(program=program), "version"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    assert int(done.stdout.splitlines()[-1]) > 10_000


# --- what reads a cluster --------------------------------------------------------------------------------------------
#: What only plug-ins, exporters, components and terminals need, and what decides.
NOT_FOR_READING: Final = (
    "aiohttp", "binder", "runtime.logs", "ui.page", "ui.queues", "runtime.settings", "runtime.tracing",
    "kubernetes_asyncio", "numpy", "opentelemetry", "prometheus_client", "rich", "scheduler.core.scheduling_queue",
    "scheduler.core.cluster", "scheduler.core.decide",
    "scheduler.core.explain", "scheduler.core.nodes.ledger", "scheduler.core.queues", "scheduler.core.scores",
    "simulator", "tenacity",
)  # fmt: skip
MODULES = """
import atexit, sys
from cli.main import kubectl
atexit.register(lambda: print(*sorted(sys.modules)))
kubectl()
"""


@pytest.fixture
def cluster() -> Iterator[str]:
    """The address of an API server that has a Queue and leases: without those we would look for five seconds."""

    class Empty(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            told: dict[str, object] = {"metadata": {"resourceVersion": "1"}, "items": []}
            if "/queues" in self.path:
                told["items"] = [{"metadata": {"name": "a", "uid": "u"}, "spec": {}}]
            if "/leases/" in self.path:
                now = rfc3339_micro(SystemClock().now_ns())
                held = {"holderIdentity": "somebody", "leaseDurationSeconds": 15, "renewTime": now}
                told = {"metadata": {"name": self.path.rpartition("/")[2]}, "spec": held}
            body = json.dumps(told).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        @override
        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Empty) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def loaded_modules(words: list[str], cluster: str, folder: Path) -> list[str]:
    """The modules that a command has loaded when it ends; it finds the cluster by a kubeconfig with a token."""
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": cluster}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    (folder / "config").write_text(json.dumps(config), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", MODULES, *words, "--kubeconfig", str(folder / "config")],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout.splitlines()[-1].split()


def of_modules(found: list[str], *needless: str) -> list[str]:
    return [each for each in found if any(each == name or each.startswith(f"{name}.") for name in needless)]


@pytest.mark.parametrize("given", [[], ["pod", "-A"], ["pod", "-A", "-o", "json"]], ids=" ".join)
def test_inspecting_with_a_kubeconfig_loads_nothing_that_decides_or_asks_plugins(
    given: list[str], cluster: str, tmp_path: Path
) -> None:
    found = loaded_modules(["inspect", *given], cluster, tmp_path)
    assert "ui.commands.inspect" in found
    assert of_modules(found, *NOT_FOR_READING) == []


@pytest.mark.parametrize("given", [["inspect", "queue"], ["explain", "queue", "a"]], ids=" ".join)
def test_queues_of_a_cluster_are_read_without_what_decides_or_reads_files(
    given: list[str], cluster: str, tmp_path: Path
) -> None:
    """They are counted by the scheduler's own sums, and lined up by its own order (scheduler/core/report)."""
    found = loaded_modules(given, cluster, tmp_path)
    assert "scheduler.core.report.queue_explanation" in found
    needed = {"ui.queues", "scheduler.core.queues"}
    needless = ("runtime.manifests", "ui.queues.count", "ui.queues.files", "scheduler.core.preemption")
    assert of_modules(found, *needless, *(each for each in NOT_FOR_READING if each not in needed)) == []


@pytest.mark.parametrize("given", [["inspect", "queue"], ["explain", "queue", "a"]], ids=" ".join)
def test_queues_of_files_are_read_without_what_reaches_clusters(given: list[str], tmp_path: Path) -> None:
    (tmp_path / "queue.yaml").write_text(
        "{apiVersion: scheduling.run.ai/v2, kind: Queue, metadata: {name: a}, spec: {}}", encoding="utf-8"
    )
    printed, modules = loaded(KUBECTL, *given, "-f", str(tmp_path / "queue.yaml"), whole=True)
    assert any("a " in line for line in printed)
    needless = {"asyncio", "kube.client.api", "numpy", "runtime.client", "ssl", "ui.inspect.reader"}
    assert not modules & needless


def test_top_is_shown_without_what_decides_or_simulates(cluster: str, tmp_path: Path) -> None:
    found = loaded_modules(["top", "--once"], cluster, tmp_path)
    assert "ui.top.screen" in found
    needless = ("numpy", "scheduler.core.cluster", "scheduler.core.decide", "simulator", "ui.queues.count")
    assert of_modules(found, *needless) == []


def test_podgroups_are_read_without_what_decides(cluster: str, tmp_path: Path) -> None:
    found = loaded_modules(["inspect", "podgroup", "-A"], cluster, tmp_path)
    assert "ui.inspect.groups" in found
    assert of_modules(found, *(each for each in NOT_FOR_READING if each != "scheduler.core.queues")) == []
