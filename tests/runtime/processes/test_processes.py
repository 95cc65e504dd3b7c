"""The mains of admission, podgrouper and the reviews."""

from __future__ import annotations

from pathlib import Path

import pytest

from admission.certificates.rotation import SelfMade
from admission.certificates.tls import Files
from admission.settings import ORIGINS, Guard
from cli.commands import program_parser
from cli.main import main
from gpu.dialects.settings import AliyunSettings, DialectSettings
from runtime.metrics.registry import Registry
from runtime.processes import admission
from runtime.processes.podgrouper import count_grouping, show_waiting
from tests.cli.given import options
from tests.podgrouper.cluster import LEAST, cluster
from tests.podgrouper.objects import obj, pod
from tests.runtime.metrics.exposed import every_sample_once, value, values

VIRTUAL_TIME = True

REQUIRED = ["--certificate", "c.pem", "--key", "k.pem"]


@pytest.mark.parametrize(
    ("given", "shares"),
    [
        ([], True),
        (["--gpu-sharing-enabled"], True),
        (["--gpu-sharing-enabled=true"], True),
        (["--gpu-sharing-enabled=1"], True),
        (["--gpu-sharing-enabled=false"], False),
        (["--gpu-sharing-enabled=F"], False),
        (["--gpu-sharing-enabled=0"], False),
    ],
)
def test_sharing_is_switched_by_kais_flag(given: list[str], shares: bool) -> None:
    settings = admission.settings(options("admission", [*REQUIRED, *given]))
    assert settings.choices.dialects.sharing is shares


@pytest.mark.parametrize(
    ("given", "guard"), [([], Guard.INJECT), *((["--visible-devices-guard", guard.value], guard) for guard in Guard)]
)
def test_the_guard_of_visible_devices_is_chosen_by_a_flag(given: list[str], guard: Guard) -> None:
    assert admission.settings(options("admission", [*REQUIRED, *given])).choices.guard is guard


@pytest.mark.parametrize(
    ("given", "runtime_class"),
    [
        ([], "nvidia"),
        (["--gpu-fraction-runtime-class-name", "nvidia-cdi"], "nvidia-cdi"),
        (["--gpu-fraction-runtime-class-name="], ""),
    ],
)
def test_the_runtime_class_of_shares_is_named_by_kais_flag_and_may_be_none(
    given: list[str], runtime_class: str
) -> None:
    assert admission.settings(options("admission", [*REQUIRED, *given])).runtime_class == runtime_class


def test_gpus_under_another_name_are_named_by_a_flag() -> None:
    given = ["--gpu-resource", "nvidia.com/gpu.shared", "--gpu-resource", "nvidia.com/a100"]
    settings = admission.settings(options("admission", [*REQUIRED, *given]))
    assert settings.gpu_resources == ("nvidia.com/gpu.shared", "nvidia.com/a100")
    assert admission.settings(options("admission", REQUIRED)).gpu_resources == ()


def test_shares_by_claims_are_off_unless_a_flag_turns_them_on() -> None:
    assert admission.settings(options("admission", [*REQUIRED, "--shares-by-claims"])).shares_by_claims
    assert not admission.settings(options("admission", REQUIRED)).shares_by_claims


@pytest.mark.parametrize("value", ["no", "", "yes", "tRUE"])
def test_a_switch_that_is_neither_on_nor_off_is_refused_in_one_line(
    value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        program_parser().parse_args(["admission", *REQUIRED, f"--gpu-sharing-enabled={value}"])
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"argument --gpu-sharing-enabled: {value!r} is neither true nor false" in line


@pytest.mark.parametrize(
    ("given", "origins"), [([], ORIGINS), (["--adopt-from", "a", "--adopt-from", "b"], ("a", "b"))]
)
def test_whose_pods_are_adopted_is_chosen_by_a_flag(given: list[str], origins: tuple[str, ...]) -> None:
    assert admission.settings(options("admission", [*REQUIRED, *given])).origins == origins


def test_how_dialects_are_read_is_chosen_by_a_file(tmp_path: Path) -> None:
    (tmp_path / "d.yaml").write_text("{aliyun: {unit_mib: 1}, sharing: true}")
    given = [*REQUIRED, "--dialects", str(tmp_path / "d.yaml")]
    dialects = admission.settings(options("admission", given)).choices.dialects
    assert dialects == DialectSettings(aliyun=AliyunSettings(unit_mib=1))
    off = [*given, "--gpu-sharing-enabled=false"]
    assert not admission.settings(options("admission", off)).choices.dialects.sharing


@pytest.mark.parametrize("command", [["admission", *REQUIRED], ["translate", "-"], ["lint", "-"]])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "No such file or directory"),
        ("clearml: {legacy: 8}", 'clearml.legacy is no setting (clearml.legacy is "8"; allowed: one of clearml.by_'),
        ("{hami: {memory_factor: 0}, volcano: {memory_factor: 0}}", 'volcano.memory_factor is "0"; allowed: 1 to'),
    ],
)
def test_a_file_that_can_not_be_ends_with_2_and_a_line_that_names_all_of_it(
    command: list[str], text: str | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "d.yaml"
    if text is not None:
        path.write_text(text)
    assert main([*command, "--dialects", str(path)]) == 2
    *_, line = capsys.readouterr().err.splitlines()
    assert str(path) in line
    assert said in line


def test_certificates_are_made_where_a_flag_says_so() -> None:
    given = ["--self-made-certificates", "--certificate-lifetime=720h", "--certificate-name", "127.0.0.1"]
    chosen = admission.certificates(options("admission", given))
    assert chosen == SelfMade(names=frozenset({"127.0.0.1"}), lifetime_s=720 * 3600)
    assert admission.certificates(options("admission", given[:1])) == SelfMade()
    files = Files(certificate=Path("c.pem"), key=Path("k.pem"))
    assert admission.certificates(options("admission", REQUIRED)) == files


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "no certificate for the webhooks: --certificate and --key not given; allowed: either --self-made"),
        (["--certificate", "c.pem"], "no certificate for the webhooks: --key not given"),
        (["--self-made-certificates", "--key", "k.pem"], "certificates are self-made, and read from files as well"),
        ([*REQUIRED, "--certificate-lifetime", "24h"], "are of --self-made-certificates, which is not given"),
    ],
)
def test_certificates_come_from_one_place(given: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["admission", *given]) == 2
    *_, line = capsys.readouterr().err.splitlines()
    assert said in line


# What grouping counts while it works.


async def test_pod_groups_pods_and_what_waits_are_counted() -> None:
    registry = Registry()
    async with cluster(started=False, reread_s=1) as on:
        replica = await on.start(count_grouping(registry))
        show_waiting(registry, replica.app)
        assert set(values(registry, "moorage_pod_groups_written_total").values()) == {0.0}
        job = await on.owner(obj("batch/v1", "Job", "j", spec={"parallelism": 3}, annotations={LEAST: "2"}))
        await on.pod(pod(job, name="first"))
        await on.pod(pod(name="alone"))
        await on.settle()
        await on.edit(job, {"metadata": {"annotations": {LEAST: "3"}}})
        await on.pod(pod(job, name="second"))
        await on.settle()
        assert values(registry, "moorage_pod_groups_written_total") == {
            ("created",): 1.0,
            ("changed",): 1.0,
            ("deleted",): 0.0,
        }
        counted = values(registry, "moorage_grouped_pods_total")
        assert {outcome: number for outcome, number in counted.items() if number} == {
            ("grouped",): 3.0,  # one of them again, as its workload was edited
            ("alone",): 1.0,
        }
        assert value(registry, "moorage_ungrouped_workloads") == 0.0
        await on.pod(pod(job, await on.owner(obj("batch/v1", "Job", "other", spec={})), name="torn"))
        await on.settle()
        assert value(registry, "moorage_ungrouped_workloads") == 1.0
        assert every_sample_once(registry)


@pytest.mark.parametrize(("given", "queue"), [([], "default-queue"), (["--default-queue", "research"], "research")])
def test_the_queue_of_workloads_that_name_none_can_be_chosen(given: list[str], queue: str) -> None:
    assert options("podgrouper", given).default_queue == queue


def test_a_queue_that_can_be_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        program_parser().parse_args(["podgrouper", "--default-queue=Research!"])
    assert ended.value.code == 2
    assert "the name of an object" in capsys.readouterr().err
