"""The real process, its real HTTP client and the real pynvml, over a stub driver and a loopback API server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reservation.conftest import Certificates, Launcher, next_line, stop
from tests.reservation.pod_server import NAME, NAMESPACE, PATH, UID, PodServer, serving

pytestmark = pytest.mark.thorough

GPU = "GPU-5e2b1c00-0000-4000-8000-000000000001"
OTHER_GPU = "GPU-5e2b1c00-0000-4000-8000-000000000002"
SLICE = "MIG-5e2b1c00-0000-4000-8000-000000000003"
IDENTITY = {"run.ai/reserve_for_gpu_index": GPU, "moorage.dev/device": "3", "moorage.dev/device-memory-mib": "81559"}
POD = f"{NAMESPACE}/{NAME}"


@pytest.fixture(autouse=True)
def one_gpu(launcher: Launcher) -> None:
    launcher.machine(f"gpu {GPU} NVIDIA_H100_80GB_HBM3 81559 3")


def test_it_writes_the_identity_of_its_device_and_holds_until_stopped(launcher: Launcher, api: PodServer) -> None:
    api.annotations["moorage.dev/tenants"] = "{}"
    process = launcher.start_and_await_hold(POD_UID=UID)
    assert api.annotations == IDENTITY | {"moorage.dev/tenants": "{}"}
    assert [(seen.method, seen.target) for seen in api.seen] == [("GET", PATH), ("PATCH", f"{PATH}?timeout=4s")]
    assert api.seen[1].headers["Content-Type"] == "application/merge-patch+json"
    assert api.seen[1].body == {"metadata": {"uid": UID, "annotations": IDENTITY}}
    assert process.poll() is None
    assert stop(process) == (0, "")


def test_without_pod_uid_the_uid_that_was_read_is_the_precondition(launcher: Launcher, api: PodServer) -> None:
    stop(launcher.start_and_await_hold())
    assert api.seen[1].body["metadata"]["uid"] == UID
    assert api.annotations == IDENTITY


def test_a_restart_on_the_same_device_writes_nothing(launcher: Launcher, api: PodServer) -> None:
    stop(launcher.start_and_await_hold(POD_UID=UID))
    api.seen.clear()
    stop(launcher.start_and_await_hold(POD_UID=UID))
    assert api.methods == ["GET"]


def test_of_a_mig_slice_it_tells_the_slice_and_not_the_card(launcher: Launcher, api: PodServer) -> None:
    launcher.machine(f"gpu {GPU} NVIDIA_H100_80GB_HBM3 81559 3", f"mig {SLICE} {GPU} 9856")
    stop(launcher.start_and_await_hold(POD_UID=UID))
    assert api.annotations == {"run.ai/reserve_for_gpu_index": SLICE, "moorage.dev/device-memory-mib": "9856"}


def test_a_restart_on_another_device_makes_the_loss_visible(launcher: Launcher, api: PodServer) -> None:
    stop(launcher.start_and_await_hold(POD_UID=UID))
    launcher.machine(f"gpu {OTHER_GPU} NVIDIA_L40S 46068 5", "fail nvmlDeviceGetMinorNumber 3")
    stop(launcher.start_and_await_hold(POD_UID=UID))
    assert api.annotations == {"run.ai/reserve_for_gpu_index": OTHER_GPU, "moorage.dev/device-memory-mib": "46068"}


def test_without_the_nvml_library_it_fails_in_one_line(launcher: Launcher, api: PodServer, tmp_path: Path) -> None:
    # A file that is no library, so that a driver installed on this machine isn't found either.
    (tmp_path / "libnvidia-ml.so.1").write_text("not a library")
    code, stderr = launcher.run(LD_LIBRARY_PATH=str(tmp_path))
    assert (code, stderr) == (1, "unable to initialize NVML: NVML Shared Library Not Found\n")
    assert api.annotations == {}


@pytest.mark.parametrize(
    ("machine", "stderr"),
    [
        (["fail nvmlInitWithFlags 9"], "unable to initialize NVML: Driver Not Loaded"),
        (["fail nvmlInitWithFlags 18"], "unable to initialize NVML: RM has detected an NVML/RM version mismatch."),
        (["fail nvmlDeviceGetCount_v2 15"], "unable to get device count: GPU is lost"),
        (["fail nvmlDeviceGetHandleByIndex_v2 15"], "unable to get device handle: GPU is lost"),
        (["fail nvmlDeviceGetUUID 15"], "unable to get device uuid: GPU is lost"),
        (["fail nvmlDeviceGetMinorNumber 15"], "unable to get device minor number: GPU is lost"),
        (["fail nvmlDeviceGetMemoryInfo 15"], "unable to get device memory: GPU is lost"),
        ([f"gpu {OTHER_GPU} NVIDIA_L40S 46068 5"], "found 2 devices, 1 was expected"),
        (["fail nvmlDeviceGetMigMode 15"], "unable to get MIG mode: GPU is lost"),
        ([f"mig {SLICE} {GPU} 9856", f"mig MIG-b {GPU} 9856"], "found 2 MIG devices, 1 was expected"),
        (
            [f"mig {SLICE} {GPU} 9856", "fail nvmlDeviceGetMigDeviceHandleByIndex 6"],
            "found 0 MIG devices, 1 was expected",
        ),
        (
            [f"mig {SLICE} {GPU} 9856", "fail nvmlDeviceGetMigDeviceHandleByIndex 15"],
            "unable to get MIG device handle: GPU is lost",
        ),
    ],
)
def test_a_broken_machine_is_told_in_one_line_and_nothing_is_written(
    launcher: Launcher, api: PodServer, machine: list[str], stderr: str
) -> None:
    launcher.machine(f"gpu {GPU} NVIDIA_H100_80GB_HBM3 81559 3", *machine)
    assert launcher.run(POD_UID=UID) == (1, f"{stderr}\n")
    assert api.annotations == {}


def test_a_pod_without_any_device_is_refused(launcher: Launcher) -> None:
    launcher.machine("# nothing here")
    assert launcher.run() == (1, "found 0 devices, 1 was expected\n")


@pytest.mark.parametrize("code", [3, 13], ids=["not supported", "function not found"])
def test_a_driver_that_knows_nothing_of_mig_tells_the_card(launcher: Launcher, api: PodServer, code: int) -> None:
    launcher.machine(f"gpu {GPU} NVIDIA_H100_80GB_HBM3 81559 3", f"fail nvmlDeviceGetMigMode {code}")
    stop(launcher.start_and_await_hold(POD_UID=UID))
    assert api.annotations == IDENTITY


@pytest.mark.parametrize("function", ["nvmlDeviceGetMinorNumber", "nvmlDeviceGetMemoryInfo"])
def test_what_the_driver_does_not_support_is_left_out(launcher: Launcher, api: PodServer, function: str) -> None:
    launcher.machine(f"gpu {GPU} NVIDIA_GB10 122880 3", f"fail {function} 3")
    stop(launcher.start_and_await_hold())
    missing = {"nvmlDeviceGetMinorNumber": "moorage.dev/device"}.get(function, "moorage.dev/device-memory-mib")
    assert missing not in api.annotations
    assert api.annotations["run.ai/reserve_for_gpu_index"] == GPU
    assert len(api.annotations) == 2


def test_a_driver_that_fails_to_shut_down_withholds_nothing(launcher: Launcher, api: PodServer) -> None:
    launcher.machine(f"gpu {GPU} NVIDIA_H100_80GB_HBM3 81559 3", "fail nvmlShutdown 15")
    stop(launcher.start_and_await_hold())
    assert api.annotations == IDENTITY


def test_it_never_writes_into_a_successor_of_its_pod(launcher: Launcher, api: PodServer) -> None:
    successor = "22222222-2222-4222-8222-222222222222"
    api.uid = successor
    code, stderr = launcher.run(POD_UID=UID)
    assert (code, stderr) == (1, f"pod {POD} was replaced: its UID is {successor}, mine is {UID}\n")
    assert api.methods == ["GET"]


def test_a_pod_replaced_between_read_and_write_is_found_by_the_precondition(launcher: Launcher, api: PodServer) -> None:
    successor = api.successor = "22222222-2222-4222-8222-222222222222"
    code, stderr = launcher.run()
    assert (code, stderr) == (1, f"pod {POD} was replaced: its UID is {successor}, mine is {UID}\n")
    assert api.methods == ["GET", "PATCH", "GET"]
    assert api.annotations == {}


@pytest.mark.parametrize(
    ("status", "message"), [(401, "Unauthorized"), (403, 'pods "x" is\nforbidden'), (404, "not found")]
)
def test_a_refusal_ends_it_in_one_line(launcher: Launcher, api: PodServer, status: int, message: str) -> None:
    api.script("GET", status, message=message)
    told = " ".join(message.split())
    assert launcher.run() == (1, f"unable to get pod {POD}: HTTP {status} {told}\n")


def test_a_server_that_fails_for_a_moment_is_asked_again(launcher: Launcher, api: PodServer) -> None:
    api.script("GET", 503, message="starting")
    process = launcher.start()
    assert next_line(process).startswith(f"unable to get pod {POD}: HTTP 503 starting; trying again in 0.")
    assert " holds " in next_line(process)
    assert stop(process) == (0, "")
    assert api.methods == ["GET", "GET", "PATCH"]


def test_a_stop_signal_interrupts_a_pause(launcher: Launcher, api: PodServer) -> None:
    api.script("GET", 429, message="later", headers={"Retry-After": "30"})
    process = launcher.start()
    assert next_line(process).endswith("trying again in 30.00 s\n")
    assert stop(process) == (0, "")
    assert api.methods == ["GET"]


@pytest.mark.parametrize("missing", ["POD_NAMESPACE", "POD_NAME"])
def test_a_missing_variable_is_named(launcher: Launcher, missing: str) -> None:
    code, stderr = launcher.run(**{missing: ""})
    assert (code, stderr) == (1, f"{missing} is not set: the pod must pass it by the downward API\n")


def test_outside_of_a_cluster_it_says_how_to_name_the_server(launcher: Launcher) -> None:
    code, stderr = launcher.run(MOORAGE_API_SERVER="")
    told = "KUBERNETES_SERVICE_HOST is not set: run inside a cluster, or set MOORAGE_API_SERVER\n"
    assert (code, stderr) == (1, told)


def test_over_tls_with_a_token_it_stays_below_32_mib(
    launcher: Launcher, certificates: Certificates, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("secret-of-the-pod\n")
    with serving(PodServer(), certificates.server_context) as api:
        in_cluster = {
            "MOORAGE_API_SERVER": "",
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": api.url.rpartition(":")[2],
            "MOORAGE_API_TOKEN_FILE": str(tmp_path / "token"),
            "MOORAGE_API_CA_FILE": str(certificates.ca_file),
        }
        # The first life compiles the modules, which takes memory that an image with bytecode does not.
        stop(launcher.start_and_await_hold(**in_cluster))
        api.annotations.clear()
        api.seen.clear()
        process = launcher.start_and_await_hold(**in_cluster)
        rss_kib = resident_kib(process.pid)
        stop(process)
    assert [seen.headers["Authorization"] for seen in api.seen] == ["Bearer secret-of-the-pod"] * 2
    assert api.annotations == IDENTITY
    assert rss_kib <= 32 * 1024


def resident_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError(f"no VmRSS of process {pid}")
