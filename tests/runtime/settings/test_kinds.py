"""How values of settings are read and written, the same wherever they stand."""

from __future__ import annotations

import pytest

from runtime.settings import kinds
from runtime.settings.kinds import Kind


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
