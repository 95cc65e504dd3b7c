from __future__ import annotations

import time
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.plugin.settings import All, Auto, Delivery, IdStrategy, MigStrategy, Mistake, PluginSettings, Policy
from nodeagent.core.plugin.settings_file import MOST_BYTES, Unreadable, decoded, read
from tests.nodeagent.core import files


def settings(text: str, environment: dict[str, str] | None = None) -> PluginSettings:
    found = read(text, environment or {})
    assert isinstance(found, PluginSettings), found
    return found


def mistakes(text: str, environment: dict[str, str] | None = None) -> tuple[Mistake, ...]:
    found = read(text, environment or {})
    assert isinstance(found, tuple), found
    assert found
    return found


def resources(**fields: Any) -> str:
    entry = {"name": "nvidia.com/gpu", "replicas": 2, **fields}
    return yaml.safe_dump({"version": "v1", "sharing": {"timeSlicing": {"resources": [entry]}}})


def test_no_file_is_all_defaults() -> None:
    for text in ("", "version: v1", "{}", "# nothing\n", "null", "flags:\nsharing:\nmoorage:\nimex:"):
        assert settings(text) == PluginSettings()


@pytest.mark.parametrize(
    ("text", "renames"),
    [
        (files.CLEARML, [("nvidia.com/gpu-0", 8, ("0",)), ("nvidia.com/gpu-1", 8, ("1",))]),
        (files.CLEARML_OLD, [("nvidia.com/gpu", 8, All.ALL)]),
        (files.NVIDIA, []),
        (files.NVIDIA_SHARED, [("nvidia.com/gpu.shared", 10, All.ALL)]),
        (files.IKTOS, [("nvidia.com/gpu-mem-gb", Auto.PER_1000_MIB, All.ALL)]),
        ("resourceConfig: gpu:sharedgpu:4", [("nvidia.com/sharedgpu", 4, All.ALL)]),
    ],
)
def test_files_of_the_source_systems_are_read_as_they_are(text: str, renames: list[Any]) -> None:
    assert [(one.rename, one.replicas, one.devices) for one in settings(text).entries] == renames


def test_the_longest_path_and_list_that_are_allowed_are_read() -> None:
    root = "/" + "d" * 4095
    found = settings(
        yaml.safe_dump({"flags": {"nvidiaDriverRoot": root}, "moorage": {"ignoredXids": [*range(1, 1001)]}})
    )
    assert (found.driver_root, found.ignored_xids) == (root, frozenset(range(1, 1001)))


@pytest.mark.parametrize(("renames", "fails"), [(False, False), (True, False), (False, True), (True, True)])
def test_each_switch_of_time_slicing_is_read_by_itself(renames: bool, fails: bool) -> None:
    switches = {"renameByDefault": renames, "failRequestsGreaterThanOne": fails}
    slicing = {**switches, "resources": [{"name": "nvidia.com/gpu", "replicas": 2}]}
    found = settings(yaml.safe_dump({"version": "v1", "sharing": {"timeSlicing": slicing}}))
    assert found.fail_requests_greater_than_one is fails
    assert [entry.rename for entry in found.entries] == ["nvidia.com/gpu.shared" if renames else "nvidia.com/gpu"]


def test_iktos_entries_name_gpus_and_mig_profiles() -> None:
    found = settings("resourceConfig: gpu:sharedgpu:4,mig-3g.20gb:small:2, mig-1g.10gb+me:gpu:1").entries
    assert [(one.name, one.rename, one.replicas) for one in found] == [
        ("nvidia.com/gpu", "nvidia.com/sharedgpu", 4),
        ("nvidia.com/mig-3g.20gb", "nvidia.com/small", 2),
        ("nvidia.com/mig-1g.10gb.me", "nvidia.com/gpu", 1),
    ]


def test_flags_are_read_from_the_file_and_the_environment_goes_first() -> None:
    text = """
flags:
  migStrategy: mixed
  nvidiaDriverRoot: /run/nvidia/driver
  plugin: {passDeviceSpecs: true, deviceListStrategy: [envvar, cdi-cri], sharedDevicesAllocationPolicy: packed}
"""
    found = settings(text, {"DEVICE_LIST_STRATEGY": "volume-mounts", "DEVICE_ID_STRATEGY": "index", "MIG_STRATEGY": ""})
    assert found.mig_strategy is MigStrategy.MIXED
    assert found.driver_root == "/run/nvidia/driver"
    assert found.pass_device_specs
    assert found.deliveries == {Delivery.VOLUME_MOUNTS}
    assert found.id_strategy is IdStrategy.INDEX
    assert found.policy is Policy.PACKED


def test_a_cdi_file_is_needed_where_devices_are_given_by_its_names() -> None:
    text = "flags: {plugin: {deviceListStrategy: [envvar, volume-mounts, cdi-annotations, cdi-cri]}}"
    needing = {each for each in settings(text).deliveries if each.is_cdi}
    assert needing == {Delivery.CDI_ANNOTATIONS, Delivery.CDI_CRI}


def test_the_environment_of_clearmls_gpu_operator_is_read() -> None:
    environment = {
        "PASS_DEVICE_SPECS": "true",
        "FAIL_ON_INIT_ERROR": "true",
        "DEVICE_LIST_STRATEGY": "volume-mounts",
        "DEVICE_ID_STRATEGY": "uuid",
        "NVIDIA_VISIBLE_DEVICES": "all",
        "NVIDIA_DRIVER_CAPABILITIES": "all",
    }
    found = settings(files.CLEARML, environment)
    assert (found.pass_device_specs, found.deliveries) == (True, frozenset({Delivery.VOLUME_MOUNTS}))


def test_iktos_compat_with_cpu_manager_passes_device_files() -> None:
    assert settings("resourceConfig: gpu:gpu:2\ncompatWithCPUManager: true").pass_device_specs


def test_resource_config_of_the_environment_is_read_unless_the_file_shares() -> None:
    environment = {"NVIDIA_DRIVER_RESOURCE_CONFIG": "gpu:sharedgpu:4"}
    assert settings("", environment).entries[0].rename == "nvidia.com/sharedgpu"
    assert mistakes(files.CLEARML, environment)[0].path == "NVIDIA_DRIVER_RESOURCE_CONFIG"


@pytest.mark.parametrize(
    ("environment", "ignored", "counted"),
    [
        ({"DP_DISABLE_HEALTHCHECKS": "all"}, None, frozenset()),
        ({"DP_DISABLE_HEALTHCHECKS": "79, xids"}, None, frozenset()),
        ({"DP_DISABLE_HEALTHCHECKS": "48,nonsense, 79"}, frozenset({48, 79}), frozenset()),
        ({"DP_ENABLE_HEALTHCHECKS": "13,31"}, frozenset(), frozenset({13, 31})),
        ({"DP_ENABLE_HEALTHCHECKS": "ALL"}, frozenset(), None),
    ],
)
def test_xids_that_count_are_named_by_nvidias_variables(
    environment: dict[str, str], ignored: frozenset[int] | None, counted: frozenset[int] | None
) -> None:
    found = settings("", environment)
    assert (found.ignored_xids, found.counted_xids) == (ignored, counted)


def test_our_section() -> None:
    text = "moorage: {gone: [GPU-1], ignoredXids: [48], countedXids: all, healingSeconds: 5, labels: false}"
    found = settings(text)
    assert found.gone == {"GPU-1"}
    assert (found.ignored_xids, found.counted_xids) == (frozenset({48}), None)
    assert (found.healing_s, found.labels) == (5, False)


@pytest.mark.parametrize(
    ("devices", "read_as"),
    [
        ("all", All.ALL),
        (None, All.ALL),
        (2, 2),
        ([0, "1"], ("0", "1")),
        (["0:1", "MIG-0f-1/3/0"], ("0:1", "MIG-0f-1/3/0")),
        (["GPU-b1028956-cfa2-0990-bf4a-5da9abb51763"], ("GPU-b1028956-cfa2-0990-bf4a-5da9abb51763",)),
    ],
)
def test_devices_are_all_a_number_or_a_list(devices: object, read_as: object) -> None:
    assert settings(resources(devices=devices)).entries[0].devices == read_as


def test_a_slice_is_written_by_indices_and_not_read_as_sixty() -> None:
    text = resources().replace("- name", "- devices: [1:0]\n      name")
    assert settings(text).entries[0].devices == ("1:0",)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("[1]", "the file"),
        ("a: [", "the file"),
        ("a: *b", "the file"),
        ("version: v1\nversion: v1", "the file"),
        ("? [1]\n: 2", "the file"),
        ("a: !!python/object:os.system {}", "the file"),
        ("\x00", "the file"),
        ("version: v2", "version"),
        ("flag: {}", "flag"),
        ("flags: 7", "flags"),
        ("flags: {migstrategy: none}", "flags.migstrategy"),
        ("flags: {migStrategy: all}", "flags.migStrategy"),
        ("flags: {failOnInitError: sure}", "flags.failOnInitError"),
        ("flags: {nvidiaDriverRoot: run}", "flags.nvidiaDriverRoot"),
        ("flags: {plugin: [1]}", "flags.plugin"),
        ("flags: {plugin: {deviceListStrategy: [envvar, other]}}", "flags.plugin.deviceListStrategy"),
        ("flags: {plugin: {cdiAnnotationPrefix: 'a b/'}}", "flags.plugin.cdiAnnotationPrefix"),
        ("flags: {gfd: {noTimestamp: 3}}", "flags.gfd.noTimestamp"),
        ("sharing: []", "sharing"),
        ("sharing: {slicing: {}}", "sharing.slicing"),
        ("sharing: {timeSlicing: 1}", "sharing.timeSlicing"),
        ("sharing: {timeSlicing: {resources: []}}", "sharing.timeSlicing.resources"),
        ("sharing: {timeSlicing: {resources: [4]}}", "sharing.timeSlicing.resources[0]"),
        ("resourceConfig: gpu:a:1\nsharing: {timeSlicing: {resources: []}}", "sharing.timeSlicing"),
        (resources(replicas=0), "sharing.timeSlicing.resources[0].replicas"),
        (resources(replicas=-1), "sharing.timeSlicing.resources[0].replicas"),
        (resources(replicas="8"), "sharing.timeSlicing.resources[0].replicas"),
        (resources(replicas=True), "sharing.timeSlicing.resources[0].replicas"),
        (resources(replicas=60_001), "sharing.timeSlicing.resources[0].replicas"),
        (resources(replicas=10**30), "sharing.timeSlicing.resources[0].replicas"),
        (resources(name="amd.com/gpu"), "sharing.timeSlicing.resources[0].name"),
        (resources(rename="a b"), "sharing.timeSlicing.resources[0].rename"),
        (resources(devices=[]), "sharing.timeSlicing.resources[0].devices"),
        (resources(devices=0), "sharing.timeSlicing.resources[0].devices"),
        (resources(devices=["gpu"]), "sharing.timeSlicing.resources[0].devices"),
        (resources(devices=["0", "gpu"]), "sharing.timeSlicing.resources[0].devices"),
        (f"flags: {{nvidiaDriverRoot: /{'d' * 4096}}}", "flags.nvidiaDriverRoot"),
        (f"moorage: {{ignoredXids: {[1] * 1001}}}", "moorage.ignoredXids"),
        (resources(replica=2), "sharing.timeSlicing.resources[0].replica"),
        ("resourceConfig: ''", "resourceConfig"),
        ("resourceConfig: gpu:sharedgpu", "resourceConfig[0]"),
        ("resourceConfig: gpu:a:2,gpu:b:0", "resourceConfig[1]"),
        ("resourceConfig: gpu:a:-2", "resourceConfig[0]"),
        ("resourceConfig: gpu:a:x", "resourceConfig[0]"),
        ("resourceConfig: tpu:a:2", "resourceConfig[0]"),
        ("moorage: 1", "moorage"),
        ("moorage: {healing: 1}", "moorage.healing"),
        ("moorage: {gone: GPU-1}", "moorage.gone"),
        ("moorage: {ignoredXids: [x]}", "moorage.ignoredXids"),
        ("moorage: {healingSeconds: 0}", "moorage.healingSeconds"),
        ("moorage: {labels: 1}", "moorage.labels"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(text: str, path: str) -> None:
    found = mistakes(text)
    assert [one.path for one in found] == [path]
    assert not found[0].is_unserved
    assert "\n" not in str(found[0])


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("flags: {gdsEnabled: true}", "flags.gdsEnabled"),
        ("flags: {mofedEnabled: true}", "flags.mofedEnabled"),
        ("flags: {gdrcopyEnabled: true}", "flags.gdrcopyEnabled"),
        ("flags: {deviceDiscoveryStrategy: tegra}", "flags.deviceDiscoveryStrategy"),
        ("imex: {channelIDs: [0]}", "imex"),
        ("sharing: {mps: {resources: []}}", "sharing.mps"),
        ("resources: {gpus: []}", "resources"),
        ("resourceConfig: gpu:a:2\nlegacyDaemonsetAPI: true", "legacyDaemonsetAPI"),
    ],
)
def test_what_this_plugin_does_not_serve_says_so(text: str, path: str) -> None:
    (found,) = mistakes(text)
    assert (found.path, found.is_unserved) == (path, True)


def test_all_mistakes_of_a_file_are_named_at_once() -> None:
    assert [one.path for one in mistakes("flags: {a: 1, migStrategy: b}\nmoorage: {c: 1}")] == [
        "flags.a",
        "flags.migStrategy",
        "moorage.c",
    ]


def test_at_most_fifty_mistakes_are_named() -> None:
    assert len(mistakes("\n".join(f"k{number}: v" for number in range(60)))) == 50


@pytest.mark.parametrize(
    "text",
    [
        "a" * 65_537,
        "[" * 60_000,
        "{a: " * 15_000,
        "- " * 30_000,
        "a: 1" + "0" * 60_000,
        "x: &a [1]\ny: [*a, *a]",
        "? " * 30_000,
        '"' * 60_000,
        "\n".join(f"k{number}: v" for number in range(6_000)),
    ],
)
def test_a_file_that_is_made_to_hurt_is_refused_soon(text: str) -> None:
    began = time.process_time()
    assert mistakes(text)
    assert time.process_time() - began < 5


_KEYS = st.sampled_from(
    [
        "version",
        "flags",
        "plugin",
        "gfd",
        "sharing",
        "timeSlicing",
        "mps",
        "resources",
        "name",
        "rename",
        "devices",
        "replicas",
        "imex",
        "channelIDs",
        "moorage",
        "gone",
        "ignoredXids",
        "migStrategy",
        "deviceListStrategy",
        "resourceConfig",
        "renameByDefault",
        "healingSeconds",
    ]
)
_LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["v1", "all", "auto", "gpu:a:2", "nvidia.com/gpu", "0:1", "mixed"])
)


@given(
    st.recursive(
        _LEAVES,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS | st.text(max_size=3), inner, max_size=4),
        max_leaves=20,
    )
)
def test_any_yaml_is_read_or_refused_with_a_place(value: object) -> None:
    found = read(yaml.safe_dump(value), {})
    assert isinstance(found, PluginSettings) or all(one.path and "\n" not in str(one) for one in found)


@given(st.text(alphabet="ab:-[]{}&*!|>'\"#%@`?,\n\t 01~<\\", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    found = read(text, {})
    assert isinstance(found, PluginSettings) or all(one.path for one in found)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("a: 1", {"a": 1}),
        ("a: -1\nb: +2\nc: 0", {"a": -1, "b": 2, "c": 0}),
        ("a: 1:0\nb: 010\nc: 0x1f\nd: 1_000\ne: 1.5", {"a": "1:0", "b": "010", "c": "0x1f", "d": "1_000", "e": "1.5"}),
        ("a: 2001-99-99", {"a": "2001-99-99"}),
        ("a: yes\nb: off\nc: ~", {"a": True, "b": False, "c": None}),
        ("<<: {a: 1}", {"<<": {"a": 1}}),
        ("a: " + "9" * 30, {"a": "9" * 30}),
        ('{"a": [1, "b", null]}', {"a": [1, "b", None]}),
    ],
)
def test_values_are_text_decimal_numbers_booleans_lists_and_mappings(text: str, value: object) -> None:
    assert decoded(text) == value


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: {a: " * 10 + "1" + "}" * 10, "line 1"),
        ("[" * 21 + "]" * 21, "more than 20 levels"),
        ("a: 1\na: 2", "a key is there twice"),
        ("? {b: 1}\n: 2", "a key is no text"),
        ("a: &x 1\nb: *x", "aliases"),
        ("a: !!set {b}", "line 1, column 4: tags"),
        ("x" * (MOST_BYTES + 1), "has more than 65536 bytes"),
        ("a: !!int x", "tags"),
        ("a: !!timestamp 2001-99-99", "tags"),
        ("--- 1\n--- 2", "document"),
    ],
)
def test_what_is_refused_says_why(text: str, why: str) -> None:
    with pytest.raises(Unreadable, match=why) as refused:
        decoded(text)
    assert "\n" not in str(refused.value)


def test_twenty_levels_are_read() -> None:
    assert decoded("[" * 20 + "]" * 20)
