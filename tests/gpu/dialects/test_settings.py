from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu.dialects import settings_file
from gpu.dialects.settings import (
    AliyunSettings,
    ClearmlSettings,
    DialectSettings,
    HamiSettings,
    MetagpuSettings,
    ReplicasSettings,
    VolcanoSettings,
)
from gpu.dialects.settings_file import mistakes
from gpu.translation import Mistake, Refusal
from tests.fuzzing import fuzzed
from tests.values import of_kind
from wire import names

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", DialectSettings()),
        ("# nothing", DialectSettings()),
        ("{}", DialectSettings()),
        ("aliyun: {unit_mib: 1}", DialectSettings(aliyun=AliyunSettings(unit_mib=1))),
        ('{"strict": true}', DialectSettings(strict=True)),
        (
            "replicas:\n  entries:\n  - gpu:sharedgpu:4\n  fail_above_one: null",
            DialectSettings(replicas=ReplicasSettings(entries=("gpu:sharedgpu:4",))),
        ),
        ("replicas: {fail_above_one: true}", DialectSettings(replicas=ReplicasSettings(fail_above_one=True))),
    ],
)
def test_a_file_says_what_is_different(text: str, expected: DialectSettings) -> None:
    assert settings_file.of_cluster(text) == expected


@pytest.mark.parametrize(
    ("text", "field", "value", "allowed"),
    [
        (
            "clear: {}",
            "clear",
            "an object",
            "one of aliyun, clearml, driver_memory_caps, hami, metagpu, nodes, replicas, sharing, strict, volcano",
        ),
        ("aliyun: {unit: 1}", "aliyun.unit", "1", "one of aliyun.count_divides_memory, aliyun.unit_mib"),
        ("aliyun: {unit_mib: '1'}", "aliyun.unit_mib", "1", "a whole number"),
        ("aliyun: {unit_mib: true}", "aliyun.unit_mib", "True", "a whole number"),
        ("aliyun: {unit_mib: 1.5}", "aliyun.unit_mib", "1.5", "a whole number"),
        ("aliyun: {unit_mib:}", "aliyun.unit_mib", "None", "a whole number"),
        ("strict: 1", "strict", "1", "true or false"),
        ("replicas: {entries: gpu:x:2}", "replicas.entries", "gpu:x:2", "a list of texts"),
        ("replicas: {fail_above_one: x}", "replicas.fail_above_one", "x", "true or false"),
        ("metagpu: {resource: 1}", "metagpu.resource", "1", "text"),
        ("clearml: 8", "clearml", "8", "fields, such as legacy_replicas"),
        ("aliyun: {unit_mib: 5}", "aliyun.unit_mib", "5", "1024 for GiB or 1 for MiB"),
        ("- 1", "the file", "- 1", "fields, such as clearml"),
        (
            "1: 2",
            "1",
            "2",
            "one of aliyun, clearml, driver_memory_caps, hami, metagpu, nodes, replicas, sharing, strict, volcano",
        ),
    ],
)
def test_what_can_not_be_is_refused_by_field_value_and_what_is_allowed(
    text: str, field: str, value: str, allowed: str
) -> None:
    (refusal,) = refusals(text)
    assert (refusal.field, refusal.value, refusal.allowed) == (field, value, allowed)
    assert refusal.message.startswith(field)


def refusals(text: str) -> tuple[Refusal, ...]:
    found = settings_file.of_cluster(text)
    assert not isinstance(found, DialectSettings)
    return found


#: Each line doubles what the one before it stands for.
LISTS = ["a0: &a0 [x, x]", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 60)), "strict: *a59"]
MERGES = ["a0: &a0 {x: 1}", *(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}" for n in range(1, 60)), "strict: *a59"]


@pytest.mark.parametrize("lines", [LISTS, MERGES], ids=["lists", "merges"])
def test_what_little_text_makes_large_is_not_written_out(lines: list[str]) -> None:
    (refusal,) = refusals("\n".join(lines))
    assert refusal.allowed == "aliases (*name) are not read here: write them out"
    assert settings_file.of_namespace("\n".join(lines), CLUSTER) == msgspec.structs.replace(
        refusal, field=names.DIALECTS, message=refusal.message.replace("the file", names.DIALECTS)
    )


def test_a_key_that_is_a_list_is_refused() -> None:
    assert refusals("? [1, 2]\n: 3")[0].field == "the file"


def test_what_a_namespace_says_is_read_up_to_a_length() -> None:
    said = "hami: {memory_factor: 2} #"
    long = said + " " * (16_384 - len(said))
    assert isinstance(settings_file.of_namespace(long, CLUSTER), DialectSettings)
    refusal = of_kind(Refusal, settings_file.of_namespace(long + " ", CLUSTER))
    assert (refusal.field, refusal.allowed) == (names.DIALECTS, "at most 16384 characters")


def test_what_is_no_yaml_is_told_with_its_place() -> None:
    (refusal,) = refusals("aliyun: {unit_mib: 1")
    assert "line 1" in refusal.allowed


def test_each_value_that_can_not_be_is_named() -> None:
    text = "{hami: {memory_factor: 0}, volcano: {memory_factor: 0}, replicas: {entries: ['gpu:x']}}"
    assert [refusal.field for refusal in refusals(text)][:2] == ["hami.memory_factor", "volcano.memory_factor"]
    assert len(refusals(text)) == 3


CLUSTER = DialectSettings(aliyun=AliyunSettings(unit_mib=1), hami=HamiSettings(memory_factor=10), strict=True)


def test_a_namespace_says_what_is_different_from_the_cluster() -> None:
    found = settings_file.of_namespace(
        '{"clearml": {"legacy_replicas": 8}, "hami": {"owns_plain_counts": true}}', CLUSTER
    )
    assert found == msgspec.structs.replace(
        CLUSTER, clearml=ClearmlSettings(legacy_replicas=8), hami=HamiSettings(memory_factor=10, owns_plain_counts=True)
    )
    assert settings_file.of_namespace("metagpu: {allow_span: true}", CLUSTER) == msgspec.structs.replace(
        CLUSTER, metagpu=MetagpuSettings(allow_span=True)
    )


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("replicas: {entries: []}", "replicas"),
        ("sharing: true", "sharing"),
        ("metagpu: {units: 50}", "metagpu.units"),
        ("metagpu: {resource: a.b/c}", "metagpu.resource"),
    ],
)
def test_what_nodes_have_is_said_for_the_cluster_only(text: str, field: str) -> None:
    found = of_kind(Refusal, settings_file.of_namespace(text, CLUSTER))
    assert (found.field, found.allowed) == (field, "in the cluster's file only")


@pytest.mark.parametrize("text", ["hami: {memory_factor: 0}", "{", "hami: {memory: 1}"])
def test_what_can_not_be_of_a_namespace_is_refused(text: str) -> None:
    assert isinstance(settings_file.of_namespace(text, CLUSTER), Refusal)


@fuzzed
@given(
    st.text()
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=2)
            | st.dictionaries(
                st.sampled_from(["clearml", "hami", "replicas", "entries", "strict", "x", "legacy_replicas"]), inner
            )
        ),
    ).map(lambda value: msgspec.json.encode(value).decode())
)
def test_whatever_is_written_is_settings_or_refusals(text: str) -> None:
    found = settings_file.of_cluster(text)
    assert isinstance(found, DialectSettings) or all(refusal.field and refusal.allowed for refusal in found)
    assert isinstance(settings_file.of_namespace(text, CLUSTER), DialectSettings | Refusal)


def test_the_example_can_be_given_to_admission() -> None:
    found = of_kind(DialectSettings, settings_file.of_cluster((ROOT / "examples/settings/dialects.yaml").read_text()))
    assert found.clearml == ClearmlSettings(legacy_replicas=8, round_up=True)
    assert found.replicas.entries == ("gpu:sharedgpu:4", "gpu:gpu-mem-gb:-1")


def fields(settings: msgspec.Struct, path: str = "") -> dict[str, object]:
    """Every value of the settings by its field."""
    found: dict[str, object] = {}
    for name in settings.__struct_fields__:
        value = getattr(settings, name)
        found |= fields(value, f"{path}{name}.") if isinstance(value, msgspec.Struct) else {path + name: value}
    return found


def test_the_page_for_users_lists_every_setting_with_its_default_and_where_it_may_be_said() -> None:
    rows = [line.split("|") for line in (ROOT / "docs/dialects.md").read_text().splitlines() if line.startswith("| `")]
    told = {cells[1].strip(" `"): (cells[2].strip(" `"), cells[-2].strip()) for cells in rows}
    assert told.keys() == fields(DialectSettings()).keys()
    for name, default in fields(DialectSettings()).items():
        text = (
            "none" if default == () else default if isinstance(default, str) else msgspec.json.encode(default).decode()
        )
        assert told[name][0] == text
        group, _, last = name.partition(".")
        said = msgspec.json.encode({group: {last: default} if last else default}).decode()
        is_of_namespace = isinstance(settings_file.of_namespace(said, CLUSTER), DialectSettings)
        assert told[name][1] == ("yes" if is_of_namespace else "")


def test_what_is_set_by_default_can_be() -> None:
    assert mistakes(DialectSettings()) == ()


@pytest.mark.parametrize(
    "settings",
    [
        DialectSettings(clearml=ClearmlSettings(legacy_replicas=8), aliyun=AliyunSettings(unit_mib=1)),
        DialectSettings(metagpu=MetagpuSettings(units=3, resource="example.org/metaGpus")),
        DialectSettings(replicas=ReplicasSettings(entries=("gpu:sharedgpu:4,mig-3g.20gb:small:2",), time_slices=8)),
        DialectSettings(hami=HamiSettings(memory_factor=1024, default_cores_percent=100)),
    ],
)
def test_what_the_documents_name_can_be(settings: DialectSettings) -> None:
    assert mistakes(settings) == ()


@pytest.mark.parametrize(
    ("settings", "field", "value"),
    [
        (DialectSettings(clearml=ClearmlSettings(legacy_replicas=-1)), "clearml.legacy_replicas", "-1"),
        (DialectSettings(aliyun=AliyunSettings(unit_mib=0)), "aliyun.unit_mib", "0"),
        (DialectSettings(aliyun=AliyunSettings(unit_mib=1000)), "aliyun.unit_mib", "1000"),
        (DialectSettings(metagpu=MetagpuSettings(units=0)), "metagpu.units", "0"),
        (DialectSettings(metagpu=MetagpuSettings(units=1001)), "metagpu.units", "1001"),
        (DialectSettings(metagpu=MetagpuSettings(resource="")), "metagpu.resource", ""),
        (DialectSettings(metagpu=MetagpuSettings(resource="metagpu")), "metagpu.resource", "metagpu"),
        (DialectSettings(metagpu=MetagpuSettings(resource="nvidia.com/gpu")), "metagpu.resource", "nvidia.com/gpu"),
        (DialectSettings(replicas=ReplicasSettings(entries=("gpu:x",))), "resourceConfig", "gpu:x"),
        (DialectSettings(replicas=ReplicasSettings(mps_replicas=0)), "mps", "0"),
        (DialectSettings(hami=HamiSettings(memory_factor=0)), "hami.memory_factor", "0"),
        (DialectSettings(hami=HamiSettings(default_mem_mib=-1)), "hami.default_mem_mib", "-1"),
        (DialectSettings(hami=HamiSettings(default_cores_percent=101)), "hami.default_cores_percent", "101"),
        (DialectSettings(hami=HamiSettings(default_gpus=0)), "hami.default_gpus", "0"),
        (DialectSettings(volcano=VolcanoSettings(memory_factor=0)), "volcano.memory_factor", "0"),
    ],
)
def test_a_wrong_setting_is_told_by_name(settings: DialectSettings, field: str, value: str) -> None:
    [refusal] = mistakes(settings)
    assert (refusal.code, refusal.field, refusal.value) == (Mistake.MALFORMED, field, value)
    assert refusal.message
    assert refusal.allowed


def test_all_wrong_settings_are_told_at_once() -> None:
    settings = DialectSettings(
        aliyun=AliyunSettings(unit_mib=0), metagpu=MetagpuSettings(units=0), replicas=ReplicasSettings(entries=("",))
    )
    assert [refusal.field for refusal in mistakes(settings)] == ["metagpu.units", "aliyun.unit_mib", "resourceConfig"]
