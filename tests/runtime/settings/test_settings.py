"""Settings: one declaration for flag, file and environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from cli.commands import COMPONENTS, program_parser
from runtime.settings import kinds
from runtime.settings.declaration import Declared, declared
from runtime.settings.file import LONGEST
from runtime.settings.kinds import Kind
from runtime.settings.scheduler import read, written
from runtime.settings.sources import gathered
from runtime.text import BadInput
from scheduler.core.model.pod_class import Requirement, Term
from tests.cli.given import options, settings_of
from tests.quick import few

# How values of settings are read and written, the same wherever they stand.


@pytest.mark.parametrize(
    ("kind", "text", "value", "written"),
    [
        (kinds.SWITCH, "T", True, "true"),
        (kinds.SWITCH, "0", False, "false"),
        (kinds.seconds(), "250ms", 0.25, "0.25s"),
        (kinds.seconds(), "0", 0.0, "0s"),
        (kinds.seconds(), "90", 90.0, "90s"),
        (kinds.seconds(), "2m", 120.0, "2m"),
        (kinds.seconds(), "24h", 86400.0, "24h"),
        (kinds.RATIO, "0.1", 100_000_000, "0.1"),
        (kinds.RATIO, "1", 1_000_000_000, "1"),
        (kinds.RATIO, "0.000000001", 1, "0.000000001"),
        (kinds.ADDRESS, ":8081", ("", 8081), ":8081"),
        (kinds.ADDRESS, "[::1]:80", ("::1", 80), "[::1]:80"),
        (kinds.PORT, "65535", 65535, "65535"),
        (kinds.OBJECT, "", "", ""),
        (kinds.OBJECT, "nvidia-cdi.v2", "nvidia-cdi.v2", "nvidia-cdi.v2"),
        (kinds.RESOURCE, "nvidia.com/gpu.shared", "nvidia.com/gpu.shared", "nvidia.com/gpu.shared"),
        (kinds.IMAGE, "r:5000/a/b@sha256:0", "r:5000/a/b@sha256:0", "r:5000/a/b@sha256:0"),
        (kinds.URL, "https://[::1]:6443/base", "https://[::1]:6443/base", "https://[::1]:6443/base"),
        (kinds.URL, "", "", ""),
        (kinds.COLLECTOR, "", "", ""),
        (kinds.COLLECTOR, "http://otel:4318", "http://otel:4318", "http://otel:4318"),
        (kinds.COLLECTOR, "https://[::1]/v1/traces", "https://[::1]/v1/traces", "https://[::1]/v1/traces"),
        (kinds.TRACE_ADDRESS, "", "", ""),
        (kinds.TRACE_ADDRESS, "https://h/trace/{trace_id}", "https://h/trace/{trace_id}", "https://h/trace/{trace_id}"),
        (
            kinds.TRACE_ADDRESS,
            "http://h:16686/?id={trace_id}&x",
            "http://h:16686/?id={trace_id}&x",
            "http://h:16686/?id={trace_id}&x",
        ),
        (kinds.TRACE_ADDRESS, "https://h#{trace_id}", "https://h#{trace_id}", "https://h#{trace_id}"),
    ],
)
def test_a_value_is_read_and_what_is_written_of_it_is_read_as_the_same(
    kind: Kind, text: str, value: object, written: str
) -> None:
    assert kind.read(text) == value
    assert kind.written(value) == written
    assert kind.read(written) == value


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        (kinds.SWITCH, "yes", "'yes' is neither true nor false"),
        (kinds.choice(("off", "inject")), "on", "'on' is none of: off, inject"),
        (kinds.seconds(above=True), "0", "'0' is out of range; allowed: a number with ms, s, m or h as in 250ms, "),
        (kinds.seconds(60), "1s", "at least 60s, at most 8784h"),
        (kinds.seconds(), "-1", "'-1' is not a number with ms, s, m or h"),
        (kinds.seconds(most_s=60), "2m", "at least 0s, at most 60s"),
        (kinds.PORT, "0", "'0' is not a whole number from 1 to 65535"),
        (kinds.PORT, "+1", "'+1' is not a whole number"),
        (kinds.PORT, "\uff11", "is not a whole number"),
        (kinds.OBJECT, "Nvidia", "'Nvidia' is not the name of an object: lower-case"),
        (kinds.OBJECT, "a" * 254, "is not the name of an object"),
        (kinds.RESOURCE, "gpu", "'gpu' is not the name of an extended resource"),
        (kinds.IMAGE, "", "'' is not the name of an image"),
        (kinds.IMAGE, "a b", "'a b' is not the name of an image"),
        (kinds.PEM, "", "'' is no file"),
        (kinds.COLLECTOR, "otel:4318", "'otel:4318' is not http://HOST:PORT or https://HOST, with a path or without"),
        (kinds.COLLECTOR, "grpc://otel:4317", "is not http://HOST:PORT"),
        (kinds.COLLECTOR, "http://otel:99999", "is not http://HOST:PORT"),
        (kinds.COLLECTOR, "http://:4318", "is not http://HOST:PORT"),
        (kinds.COLLECTOR, "http://otel /v1", "is not http://HOST:PORT"),
        (kinds.TRACE_ADDRESS, "jaeger.example/{trace_id}", "is not http://HOST or https://HOST"),
        (kinds.TRACE_ADDRESS, "javascript://x/{trace_id}", "is not http://HOST or https://HOST"),
        (kinds.TRACE_ADDRESS, "https://h/trace", "with {trace_id} once after it"),
        (kinds.TRACE_ADDRESS, "https://h/{trace_id}/{trace_id}", "with {trace_id} once after it"),
        (kinds.TRACE_ADDRESS, "https://h/{trace_id}?x={other}", "with {trace_id} once after it"),
        (kinds.TRACE_ADDRESS, "https://{trace_id}.example/", "with {trace_id} once after it"),
        (kinds.TRACE_ADDRESS, "https://h{trace_id}", "with {trace_id} once after it"),
        (kinds.TRACE_ADDRESS, "https://h/ {trace_id}", "with {trace_id} once after it"),
        (kinds.TRACE_ADDRESS, "https://h:port/{trace_id}", "with {trace_id} once after it"),
        (kinds.TRACE_ADDRESS, "https://me:secret@h/{trace_id}", "a URL with a user is not taken"),
        (
            kinds.COLLECTOR,
            "http://a:b@otel",
            "a URL with a user is not taken; allowed: http://HOST:PORT, with --traces",
        ),
        (kinds.URL, "api:6443", "'api:6443' is not https://HOST:PORT"),
    ],
)
def test_what_can_not_be_is_refused_with_the_text_and_what_is_allowed(kind: Kind, text: str, said: str) -> None:
    with pytest.raises(ValueError, match="is") as refused:
        kind.read(text)
    assert said in str(refused.value)


def test_a_password_in_a_url_is_not_repeated() -> None:
    with pytest.raises(ValueError, match="a URL with a user is not taken") as refused:
        kinds.URL.read("https://me:planted-secret@api:6443")
    assert "planted-secret" not in str(refused.value)


# Node affinity as a setting.

_POOL = {"key": "pool", "operator": "In", "values": ["a", "b"]}
_NOT_ON = {"key": "metadata.name", "operator": "NotIn", "values": ["n"]}


def _json(*terms: dict[str, Any]) -> str:
    return json.dumps({"nodeSelectorTerms": list(terms)})


def test_terms_are_read_as_manifests_have_them_and_written_so() -> None:
    given = _json({"matchExpressions": [_POOL]}, {"matchFields": [_NOT_ON]})
    found = read(given)
    assert found == (
        Term((Requirement("pool", "In", ("a", "b")),), ()),
        Term((), (Requirement("metadata.name", "NotIn", ("n",)),)),
    )
    assert json.loads(written(found)) == json.loads(given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("pool=a", "can't be read (JSON is malformed"),
        ("{}", "missing required field `nodeSelectorTerms`"),
        (_json(), "nodeSelectorTerms is empty"),
        (_json({}), "has a term that holds nowhere"),
        (_json({"matchExpresions": [_POOL]}), "unknown field `matchExpresions`"),
        (_json({"matchExpressions": [{**_POOL, "operator": "Is"}]}), "the operator 'Is' is unknown"),
        (_json({"matchExpressions": [{**_POOL, "values": []}]}), "In of 'pool' has 0 values"),
        (_json({"matchExpressions": [{**_POOL, "operator": "Exists"}]}), "Exists of 'pool' has 2 values"),
        (_json({"matchExpressions": [{**_POOL, "operator": "Gt"}]}), "Gt of 'pool' has 2 values"),
        (_json({"matchExpressions": [{**_POOL, "values": ["a b"]}]}), "has a term that holds nowhere"),
        (_json({"matchFields": [{**_NOT_ON, "key": "spec"}]}), "it takes metadata.name In or NotIn one name"),
        (_json({"matchFields": [{**_NOT_ON, "values": ["n", "m"]}]}), "it takes metadata.name In or NotIn one name"),
        (_json(*[{"matchExpressions": [_POOL]}] * 60), "is too large"),
    ],
)
def test_what_means_nothing_is_refused_with_what_is_allowed(given: str, words: str) -> None:
    with pytest.raises(ValueError, match="allowed: ") as refused:
        read(given)
    assert words in str(refused.value)


# Settings come from the command line, then the environment, then a file, then the defaults.

ROOT = Path(__file__).parents[3]
#: All but those that are nothing unless they are said.
NAMES = [component.name for component in COMPONENTS]
DEFAULTS = [
    (component.name, each)
    for component in COMPONENTS
    for each in declared(component.settings())
    if each.default not in {None, (), ""}
]


def gathering_written(folder: Path, text: str) -> str:
    path = folder / "settings.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("line", "variable", "in_file", "idle_s"),
    [
        ([], None, None, 10.0),
        ([], None, "3", 3.0),
        ([], "2", "3", 2.0),
        (["--idle-s=1"], "2", "3", 1.0),
        (["--idle-s=1"], None, "3", 1.0),
        # Said is said, be it what holds anyway.
        (["--idle-s=10"], "2", None, 10.0),
    ],
)
def test_the_command_line_goes_before_the_environment_before_the_file_before_the_default(
    line: Sequence[str], variable: str | None, in_file: str | None, idle_s: float, tmp_path: Path
) -> None:
    environment = {} if variable is None else {"MOORAGE_BINDER_IDLE_S": variable}
    config = [] if in_file is None else ["--config", gathering_written(tmp_path, f"idle-s: {in_file}")]
    assert options("binder", [*line, *config], environment).idle_s == idle_s


def test_the_file_may_be_named_by_the_environment(tmp_path: Path) -> None:
    environment = {"MOORAGE_BINDER_CONFIG": gathering_written(tmp_path, "idle-s: 3")}
    assert options("binder", [], environment).idle_s == 3.0


@pytest.mark.parametrize(
    ("component", "each"), DEFAULTS, ids=lambda given: given if isinstance(given, str) else given.key
)
def test_every_default_can_be_said_on_a_line_in_a_variable_and_in_a_file_and_means_the_same(
    component: str, each: Declared, tmp_path: Path
) -> None:
    kind, many = each.setting.kind, each.setting.many
    texts = [kind.written(one) for one in each.default] if many else [kind.written(each.default)]
    plain = getattr(options(component), each.field)
    by_line = options(component, [f"{each.flag}={text}" for text in texts])
    by_variable = options(component, [], {each.variable(component): ",".join(texts)})
    assert getattr(by_line, each.field) == getattr(by_variable, each.field) == plain
    if each.setting.in_file:
        path = gathering_written(tmp_path, json.dumps({each.key: texts if many else texts[0]}))
        assert getattr(options(component, ["--config", path]), each.field) == plain


@pytest.mark.parametrize(
    ("component", "text", "field", "value"),
    [
        # The word, not YAML's false.
        ("admission", "visible-devices-guard: off", "visible_devices_guard", "off"),
        ("binder", "cdi-enabled: false", "cdi_enabled", "false"),
        ("scheduler", "gpu-memory-to-fraction-ratio: 0.1", "gpu_memory_to_fraction_ratio", 100_000_000),
        ("scheduler", "{inspect-address: ':80'}", "inspect_address", ("", 80)),
        ("admission", "gpu-resource: [a.b/c, d.e/f]", "gpu_resource", ("a.b/c", "d.e/f")),
        ("admission", "adopt-from: []", "adopt_from", ()),
        ("admission", 'gpu-fraction-runtime-class-name: ""', "gpu_fraction_runtime_class_name", ""),
        ("binder", "", "idle_s", 10.0),
        ("binder", "# nothing yet\n", "idle_s", 10.0),
        ("binder", '{"idle-s": 1}', "idle_s", 1.0),
    ],
)
def test_a_value_in_a_file_is_read_as_on_the_command_line(
    component: str, text: str, field: str, value: object, tmp_path: Path
) -> None:
    read = getattr(options(component, ["--config", gathering_written(tmp_path, text)]), field)
    assert getattr(read, "value", read) == value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("idle: 3", "idle: the binder has no such setting in a file; did you mean idle-s?"),
        ("zzz: 3", "zzz: the binder has no such setting in a file; docs/reference/settings.md names them all"),
        ("config: b.yaml", "config: the binder has no such setting in a file"),
        ("idle_s: 3", "did you mean idle-s?"),
        ("idle-s: soon", "idle-s: 'soon' is not a number with ms, s, m or h"),
        ("idle-s:", 'idle-s: has no value; allowed: one value, as on the command line; "" for the empty text'),
        ("idle-s: null", "idle-s: has no value"),
        ("idle-s: [1]", "idle-s: is a list; allowed: one value"),
        ("idle-s: {a: 1}", "idle-s: is an object; allowed: one value"),
        ("idle-s: 1\nidle-s: 2", "idle-s: it is there twice"),
        ("[1]: 1", "a key that is no text: the binder has no such setting"),
        ("- idle-s", "it has to be an object"),
        ("a: &x 1\nb: *x", "aliases (*name) are not read here"),
        ("{", "it is not YAML"),
        ("[" * 20_000, "it is not YAML"),
        ("--- {idle-s: 1}\n--- {idle-s: 2}", "it is not YAML"),
        (f"#{'x' * LONGEST}", f"it is too long; allowed: at most {LONGEST} bytes"),
        ("idle: 1\ncontended-s: x", "contended-s: 'x' is not a number"),
    ],
)
def test_a_file_that_can_not_be_is_refused_with_its_name_the_key_and_what_is_allowed(
    text: str, said: str, tmp_path: Path
) -> None:
    path = gathering_written(tmp_path, text)
    with pytest.raises(BadInput) as refused:
        options("binder", ["--config", path])
    assert path in str(refused.value)
    assert said in str(refused.value)


def test_a_file_that_is_not_there_or_no_text_is_refused_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for name, said in (("missing", "No such file"), ("binary", "not UTF-8 text"), ("", "s a directory")):
        with pytest.raises(BadInput, match=said):
            options("binder", ["--config", str(tmp_path / name)])


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        (
            {"MOORAGE_BINDER_IDLE": "3"},
            "environment variable MOORAGE_BINDER_IDLE: the binder has no such setting; did you mean "
            "MOORAGE_BINDER_IDLE_S?",
        ),
        ({"MOORAGE_BINDER_IDLE_S": "-3"}, "environment variable MOORAGE_BINDER_IDLE_S: '-3' is not a number"),
        ({"MOORAGE_BINDER_IDLE_S": ""}, "environment variable MOORAGE_BINDER_IDLE_S: '' is not a number"),
        ({"MOORAGE_BINDER_PORT": "80"}, "MOORAGE_BINDER_PORT: the binder has no such setting"),
    ],
)
def test_a_variable_that_can_not_be_is_refused_with_its_name_and_what_is_allowed(
    environment: Mapping[str, str], said: str
) -> None:
    with pytest.raises(BadInput) as refused:
        options("binder", [], environment)
    assert said in str(refused.value)


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as refused:
        options("binder", ["--config", gathering_written(tmp_path, "a: 1\nb: 2")], {"MOORAGE_BINDER_C": "3"})
    assert [word in str(refused.value) for word in ("a: the", "b: the", "MOORAGE_BINDER_C: the")] == [True] * 3


#: What Kubernetes puts into the environment of every pod in a namespace with the Services moorage-admission and
#: moorage-scheduler-metrics.
OF_SERVICES = {
    "MOORAGE_ADMISSION_SERVICE_HOST": "10.96.0.7",
    "MOORAGE_ADMISSION_SERVICE_PORT": "443",
    "MOORAGE_ADMISSION_SERVICE_PORT_WEBHOOKS": "443",
    "MOORAGE_ADMISSION_PORT": "tcp://10.96.0.7:443",
    "MOORAGE_ADMISSION_PORT_443_TCP": "tcp://10.96.0.7:443",
    "MOORAGE_ADMISSION_PORT_443_TCP_PROTO": "tcp",
    "MOORAGE_ADMISSION_PORT_443_TCP_PORT": "443",
    "MOORAGE_ADMISSION_PORT_443_TCP_ADDR": "10.96.0.7",
    "MOORAGE_SCHEDULER_METRICS_SERVICE_HOST": "10.96.0.8",
    "MOORAGE_SCHEDULER_METRICS_SERVICE_PORT": "8080",
    "MOORAGE_SCHEDULER_METRICS_PORT": "tcp://10.96.0.8:8080",
    "MOORAGE_SCHEDULER_METRICS_PORT_8080_TCP_ADDR": "10.96.0.8",
}


@pytest.mark.parametrize("component", NAMES)
def test_variables_that_kubernetes_makes_of_services_are_no_settings(component: str) -> None:
    assert options(component, [], OF_SERVICES) == options(component)


def test_beside_a_service_of_that_name_the_port_can_still_be_said() -> None:
    assert options("admission", [], {**OF_SERVICES, "MOORAGE_ADMISSION_PORT": "8443"}).port == 8443
    # No Service, so it is a setting, and a wrong one.
    with pytest.raises(BadInput, match="MOORAGE_ADMISSION_PORT: 'tcp://h:1' is not a whole number"):
        options("admission", [], {"MOORAGE_ADMISSION_PORT": "tcp://h:1"})


def test_several_values_stand_in_one_variable_and_a_line_replaces_them() -> None:
    environment = {"MOORAGE_ADMISSION_ADOPT_FROM": "a, b"}
    assert options("admission", [], environment).adopt_from == ("a", "b")
    assert options("admission", ["--adopt-from=c"], environment).adopt_from == ("c",)
    assert options("admission", [], {"MOORAGE_ADMISSION_ADOPT_FROM": ""}).adopt_from == ()


def test_variables_of_others_are_nobodys_business() -> None:
    assert options("binder", [], {"MOORAGE_SCHEDULER_X": "1", "MOORAGE_RIGHTS": "1", "X": "1"}) == options("binder")


def test_what_is_not_as_the_defaults_is_told_with_where_it_was_said(tmp_path: Path) -> None:
    arguments = program_parser().parse_args(
        ["admission", "--port=1", "--config", gathering_written(tmp_path, "{port: 2, host: h}")]
    )
    environment = {"MOORAGE_ADMISSION_ADOPT_FROM": "a,b", "MOORAGE_ADMISSION_HAND_OVER": "annotations"}
    told = gathered(settings_of("admission"), "admission", arguments, environment).said
    assert {key: value for key, value in told.items() if key != "config"} == {
        "port": "1 (command line)",
        "host": "h (file)",
        "adopt-from": "a,b (environment)",
    }


@pytest.mark.parametrize("component", few(NAMES, 5))
def test_a_wrong_setting_ends_the_start_with_2_and_a_sentence(component: str) -> None:
    variable = f"MOORAGE_{component.upper().replace('-', '_')}_LOG_LEVEL"
    done = subprocess.run(
        [sys.executable, "-m", "cli.main", component],
        cwd=ROOT,
        env={**os.environ, variable: "loud"},
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    said = f"moorage: environment variable {variable}: 'loud' is none of: debug, info, warning, error\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)


@pytest.mark.parametrize("component", NAMES)
def test_help_tells_every_option_with_its_default(component: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        program_parser().parse_args([component, "--help"])
    told = " ".join(capsys.readouterr().out.split())
    for each in declared(settings_of(component)):
        _, _, rest = told.partition(f" {each.flag} {each.setting.kind.metavar} ")
        if each.setting.kind.bare:
            _, _, rest = told.partition(f" {each.flag} [{each.setting.kind.metavar}] ")
        assert "(default: " in rest
