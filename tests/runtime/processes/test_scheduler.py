from __future__ import annotations

import pytest

from cli.commands import program_parser
from gpu.container_devices import Cdi
from runtime.processes import scheduler
from runtime.text import BadInput
from scheduler.core.model.pod_class import Weights
from scheduler.core.model.preemption import Method, PreemptionSettings
from scheduler.core.model.settings import NodePool, own_name
from scheduler.core.queues.use_over_time import UsePeriod, parsed
from scheduler.settings import ScalingSettings, UseSource
from tests.cli.given import options

FLAG = "--default-staleness-grace-period"


@pytest.mark.parametrize(("given", "grace_s"), [([], 60.0), ([FLAG, "90s"], 90.0), ([f"{FLAG}=1m"], 60.0)])
def test_how_long_a_broken_gang_is_left_alone_is_said_by_kais_flag(given: list[str], grace_s: float) -> None:
    assert scheduler.settings(options("scheduler", given)).staleness_grace_s == grace_s


@pytest.mark.parametrize("value", ["", "soon", "0s", "-1s", "1d"])
def test_a_time_that_is_none_is_refused_in_one_line(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        program_parser().parse_args(["scheduler", f"{FLAG}={value}"])
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"argument {FLAG}: {value!r} is " in line
    assert "allowed" in line or "a number with" in line


@pytest.mark.parametrize(
    ("given", "scaling"),
    [
        ([], None),
        (["--cluster-autoscaling"], ScalingSettings()),
        (["--cluster-autoscaling=true"], ScalingSettings()),
        (["--cluster-autoscaling=false"], None),
        (["--scaling-pod-image", "i"], None),
        (["--cluster-autoscaling", "--scaling-pod-image", "i"], ScalingSettings(image="i")),
        (
            ["--cluster-autoscaling", "--gpu-memory-to-fraction-ratio", "0.25"],
            ScalingSettings(memory_to_fraction_ratio_nano=250_000_000),
        ),
        (
            ["--cluster-autoscaling", "--gpu-memory-to-fraction-ratio=1"],
            ScalingSettings(memory_to_fraction_ratio_nano=1_000_000_000),
        ),
    ],
)
def test_autoscaling_is_off_unless_it_is_asked_for(given: list[str], scaling: ScalingSettings | None) -> None:
    assert scheduler.settings(options("scheduler", given)).scaling == scaling


@pytest.mark.parametrize(
    ("given", "is_required"),
    [
        ([], False),
        (["--require-enforcement"], True),
        (["--require-enforcement=true"], True),
        (["--require-enforcement=false"], False),
    ],
)
def test_limits_need_not_be_enforced_unless_it_is_asked_for(given: list[str], is_required: bool) -> None:
    decisions = scheduler.settings(options("scheduler", given)).decisions
    assert decisions.require_enforcement is is_required


@pytest.mark.parametrize(
    ("given", "room"),
    [
        ([], PreemptionSettings()),
        (["--default-preempt-min-runtime=5m"], PreemptionSettings(preempt_min_runtime_ns=300_000_000_000)),
        (["--default-reclaim-min-runtime=90s"], PreemptionSettings(reclaim_min_runtime_ns=90_000_000_000)),
        (["--reclaim-resolve-method=queue"], PreemptionSettings(reclaim_resolve_method=Method.QUEUE)),
        (["--reclaimer-saturation-multiplier=1500"], PreemptionSettings(saturation_multiplier_milli=1500)),
        (["--stuck-in-releasing-threshold=30s"], PreemptionSettings(releasing_threshold_ns=30_000_000_000)),
        (["--preemption-interval=1s"], PreemptionSettings(interval_ns=1_000_000_000)),
        (["--longest-victim-grace-period=1h"], PreemptionSettings(longest_victim_grace_s=3600)),
    ],
)
def test_what_is_chosen_about_preemption_reaches_decisions(given: list[str], room: PreemptionSettings) -> None:
    assert scheduler.settings(options("scheduler", given)).decisions.preemption_settings == room


@pytest.mark.parametrize(
    ("given", "weights"),
    [
        ([], Weights()),
        (["--prefer-no-schedule-weight=0"], Weights(prefer_no_schedule=0)),
        (["--preferred-node-affinity-weight=100"], Weights(node_affinity=100)),
        (["--preferred-pod-affinity-weight=1"], Weights(pod_affinity=1)),
        (["--soft-spread-weight=7"], Weights(soft_spread=7)),
        (["--image-locality-weight=1"], Weights(images=1)),
        (["--hard-pod-affinity-weight=50"], Weights(hard_pod_affinity=50)),
        (["--ignore-preferred-terms-of-existing-pods"], Weights(ignores_others=True)),
    ],
)
def test_what_is_chosen_about_preferences_reaches_decisions(given: list[str], weights: Weights) -> None:
    assert scheduler.settings(options("scheduler", given)).decisions.weights == weights


@pytest.mark.parametrize("value", ["101", "-1", "1.5", "much"])
def test_a_weight_that_is_none_is_refused_in_one_line(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        program_parser().parse_args(["scheduler", f"--soft-spread-weight={value}"])
    (line,) = capsys.readouterr().err.splitlines()
    assert f"argument --soft-spread-weight: {value!r} is not a whole number from 0 to 100" in line


@pytest.mark.parametrize(("given", "per_s"), [([], 300), (["--evictions-per-second=5"], 5)])
def test_so_many_pods_are_evicted_in_a_second_as_is_chosen(given: list[str], per_s: int) -> None:
    assert scheduler.settings(options("scheduler", given)).evictions_per_s == per_s


@pytest.mark.parametrize(("given", "is_named"), [([], True), (["--suggestions=false"], False)])
def test_conditions_name_changes_that_help_unless_that_is_switched_off(given: list[str], is_named: bool) -> None:
    assert scheduler.settings(options("scheduler", given)).suggestions is is_named


@pytest.mark.parametrize(
    ("given", "is_written"), [([], True), (["--object-status=false"], False), (["--object-status"], True)]
)
def test_statuses_are_written_unless_that_is_switched_off(given: list[str], is_written: bool) -> None:
    assert scheduler.settings(options("scheduler", given)).object_status is is_written


@pytest.mark.parametrize(
    ("given", "period"),
    [
        ([], None),
        (["--queue-use-half-life=1h"], None),
        (["--queue-use-window=2h"], UsePeriod(window_s=7200)),
        (["--queue-use-window=2h", "--queue-use-half-life=1h"], UsePeriod(window_s=7200, half_life_s=3600)),
        (["--queue-use-window-cron=0 0 * * 1"], UsePeriod(cron=parsed("0 0 * * 1"))),
        (["--queue-use-prometheus=http://p:9090"], UsePeriod()),
    ],
)
def test_use_over_time_counts_only_where_a_window_is_given(given: list[str], period: UsePeriod | None) -> None:
    assert scheduler.settings(options("scheduler", given)).queue_use == period


@pytest.mark.parametrize(
    ("given", "source"),
    [
        ([], None),
        (["--queue-use-staleness-period=1m"], None),
        (["--queue-use-prometheus=http://p:9090/of/us"], UseSource(url="http://p:9090/of/us")),
        (
            [
                "--queue-use-prometheus=https://p",
                "--queue-use-fetch-interval=30s",
                "--queue-use-staleness-period=2m",
                "--queue-use-query-timeout=1.5s",
                "--queue-use-query-resolution=5m",
            ],
            UseSource(url="https://p", fetch_s=30, staleness_period_s=120, timeout_s=1.5, resolution_s=300),
        ),
    ],
)
def test_a_prometheus_is_asked_only_where_one_is_named(given: list[str], source: UseSource | None) -> None:
    assert scheduler.settings(options("scheduler", given)).use_source == source


@pytest.mark.parametrize(
    ("url", "why"), [("p:9090", "is not http://"), ("http://u:secret@p", "a URL with a user is not taken")]
)
def test_an_address_of_prometheus_that_is_none_is_refused(
    url: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        program_parser().parse_args(["scheduler", "--queue-use-prometheus", url])
    (line,) = capsys.readouterr().err.splitlines()
    assert why in line
    assert "secret" not in line


@pytest.mark.parametrize(
    ("flag", "values", "said"),
    [
        ("queue-use-window-cron", ["0 0 31 2 *"], "names no time"),
        (
            "gpu-memory-to-fraction-ratio",
            ["0", "-0.1", "1.1", "a tenth", "", "nan"],
            "is not a number above 0 and at most 1",
        ),
        ("inspect-address", ["", "12345", "localhost", "::1:80", "h:0", "h:65536", "h:80a", "h:", "h:\uff11"], ""),
        (
            "partition-label-value",
            ["A", "a_b", "a.b", "-a", "a-", "a" * 41, "a b"],
            "is not at most 40 lower-case letters",
        ),
    ],
)
def test_a_value_that_can_not_be_is_refused_in_one_line(
    flag: str, values: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for value in values:
        with pytest.raises(SystemExit) as ended:
            program_parser().parse_args(["scheduler", f"--{flag}={value}"])
        assert ended.value.code == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert f"argument --{flag}: {value!r} {said}".rstrip() in line


def test_the_scheduler_is_told_how_devices_are_named() -> None:
    assert scheduler.settings(options("scheduler", ["--cdi-enabled"])).cdi is Cdi.ON


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ([], None),
        (["--inspect-address", "127.0.0.1:12345"], ("127.0.0.1", 12345)),
        (["--inspect-address=:12345"], ("", 12345)),
        (["--inspect-address", "[::1]:80"], ("::1", 80)),
    ],
)
def test_the_inspect_api_is_served_nowhere_unless_an_address_is_given(
    given: list[str], address: tuple[str, int] | None
) -> None:
    assert options("scheduler", given).inspect_address == address


@pytest.mark.parametrize(("given", "unit_mib"), [([], 1024), (["--inspect-memory-unit", "MiB"], 1)])
def test_the_inspect_api_counts_in_the_unit_that_is_said(given: list[str], unit_mib: int) -> None:
    assert scheduler.inspect_settings(options("scheduler", given)).unit_mib == unit_mib


@pytest.mark.parametrize(("given", "expected"), [([], False), (["--workloads-are-grouped"], True)])
def test_pods_of_jobs_wait_for_pod_groups_where_workloads_are_grouped(given: list[str], expected: bool) -> None:
    assert scheduler.settings(options("scheduler", given)).decisions.workloads_are_grouped is expected


@pytest.mark.parametrize("cpu", ["binpack", "priced"])
def test_strategies_for_gpus_and_for_pods_without_are_chosen_apart(cpu: str) -> None:
    chosen = scheduler.settings(options("scheduler", ["--gpu-strategy=priced", f"--cpu-strategy={cpu}"]))
    assert (chosen.decisions.gpu_strategy, chosen.decisions.cpu_strategy) == ("priced", cpu)
    assert chosen.pricing.in_thread, "a process has a loop of real time, which must not wait for prices"


@pytest.mark.parametrize(
    ("given", "pool", "lease"),
    [
        ([], NodePool(), "moorage-scheduler"),
        (["--partition-label-value=a"], NodePool(value="a"), "moorage-scheduler-a"),
        (["--nodepool-label-key=team"], NodePool(key="team"), "moorage-scheduler"),
        (["--nodepool-label-key=x.y/team", "--partition-label-value=b-1"], NodePool(key="x.y/team", value="b-1"), None),
        (["--nodepool-label-key="], None, "moorage-scheduler"),
    ],
)
def test_which_node_pool_is_said_by_kais_flags_and_names_the_lease(
    given: list[str], pool: NodePool | None, lease: str | None
) -> None:
    found = options("scheduler", given)
    assert scheduler.settings(found).decisions.pool == pool
    assert lease is None or own_name(scheduler.LEASE, pool) == lease


def test_a_pool_without_a_label_is_refused() -> None:
    found = options("scheduler", ["--nodepool-label-key=", "--partition-label-value=a"])
    with pytest.raises(BadInput, match="--partition-label-value: 'a' is given without a label"):
        scheduler.settings(found)
