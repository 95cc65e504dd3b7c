"""The Secret and the configurations, as they come and as they are written."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest

from admission.certificates.pair import Pair, ServingCertificate, read_bundle, read_pair, serving_certificate
from admission.certificates.steps import Held, bundles_patch, held, pairs_patch, webhook_state
from wire.api_groups import WebhookConfiguration
from wire.core import Secret

NOW_NS = 1_767_225_600 * 10**9


def made() -> tuple[ServingCertificate, Pair]:
    texts = serving_certificate(dns_names=["moorage-admission.kai-scheduler.svc"], now_ns=NOW_NS)
    pair = read_pair(texts.ca, texts.certificate, texts.key)
    assert isinstance(pair, Pair)
    return texts, pair


ONE, A = made()
OTHER, B = made()


def data(texts: ServingCertificate, prefix: str = "") -> dict[str, str]:
    named = {"ca.crt": texts.ca, "tls.crt": texts.certificate, "tls.key": texts.key}
    return {prefix + key: base64.b64encode(text).decode() for key, text in named.items()}


def secret(content: Any) -> Secret:
    return msgspec.convert({"metadata": {"resourceVersion": "7"}, "data": content}, Secret)


SECRETS: dict[str, tuple[Any, Pair | None, Pair | None, str]] = {
    "no data": (None, None, None, ""),
    "empty data": ({}, None, None, ""),
    "empty values, as a Secret for TLS is begun with": (dict.fromkeys(data(ONE), ""), None, None, ""),
    "a pair": (data(ONE), A, None, ""),
    "a pair and the next": ({**data(ONE), **data(OTHER, "next-")}, A, B, ""),
    "only the next": (data(OTHER, "next-"), None, B, ""),
    "keys that are not ours": ({**data(ONE), "note": "aGVsbG8="}, A, None, ""),
    "a value that is no base64": ({**data(ONE), "tls.key": "%%%"}, None, None, "tls.crt is not a CA, a certificate"),
    "base64 of words": (dict.fromkeys(data(ONE), "aGVsbG8="), None, None, "tls.crt is not a CA, a certificate"),
    "a pair without its key": ({**data(ONE), "tls.key": ""}, None, None, "tls.crt is not a CA, a certificate"),
    "the key of another": (
        {**data(ONE), "tls.key": data(OTHER)["tls.key"]},
        None,
        None,
        "tls.crt has a key of another certificate",
    ),
    "a good pair beside a broken next one": (
        {**data(ONE), "next-tls.crt": "aGVsbG8="},
        A,
        None,
        "next-tls.crt is not a CA, a certificate",
    ),
    "both are broken": (
        {"tls.crt": "aGVsbG8=", "next-tls.crt": "aGVsbG8="},
        None,
        None,
        "in PEM; next-tls.crt is not a CA",
    ),
}


@pytest.mark.parametrize(("content", "current", "following", "said"), SECRETS.values(), ids=SECRETS)
def test_a_secret_is_read(content: Any, current: Pair | None, following: Pair | None, said: str) -> None:
    read = held(secret(content))
    assert (read.version, read.current, read.next) == ("7", current, following)
    assert said in read.unreadable
    assert bool(read.unreadable) == bool(said)
    assert ONE.key.splitlines()[1].decode() not in read.unreadable


@pytest.mark.parametrize(("current", "following"), [(A, None), (A, B), (None, B), (None, None)])
def test_what_is_written_over_anything_is_read_again(current: Pair | None, following: Pair | None) -> None:
    before = {**data(OTHER), **data(ONE, "next-"), "note": "aGVsbG8="}
    patch = pairs_patch(current, following)["data"]
    after = {key: value for key, value in {**before, **patch}.items() if value is not None}
    assert held(secret(after)) == Held("7", current, following)
    assert after["note"] == "aGVsbG8=", "other keys are not ours"


def configuration(*bundles: Any, annotations: dict[str, str] | None = None) -> WebhookConfiguration:
    webhooks = [{"name": "w", "clientConfig": {} if each is None else {"caBundle": each}} for each in bundles]
    metadata = {"resourceVersion": "9", "annotations": annotations}
    return msgspec.convert({"metadata": metadata, "webhooks": webhooks}, WebhookConfiguration)


def test_each_webhook_of_a_configuration_has_its_bundle() -> None:
    ours = base64.b64encode(ONE.ca).decode()
    read = webhook_state(configuration(ours, None, "", "%%%"), name="pods", since_ns=5)
    assert (read.name, read.version, read.since_ns, read.injected_by) == ("pods", "9", 5, "")
    assert read.bundles == (read_bundle(ONE.ca), read_bundle(b""), read_bundle(b""), read_bundle(b"?"))
    assert [each.is_clean for each in read.bundles] == [True, True, True, False]


def test_a_configuration_without_webhooks_asks_nobody() -> None:
    bare = msgspec.convert({"metadata": {"resourceVersion": "9"}, "webhooks": None}, WebhookConfiguration)
    assert webhook_state(bare, name="pods", since_ns=0).bundles == ()


@pytest.mark.parametrize(
    ("annotations", "by"),
    [
        (None, ""),
        ({"cert-manager.io/inject-ca-from": "a/b"}, "cert-manager.io/inject-ca-from"),
        ({"cert-manager.io/inject-ca-from-secret": "a/b"}, "cert-manager.io/inject-ca-from-secret"),
        ({"cert-manager.io/inject-apiserver-ca": "true"}, "cert-manager.io/inject-apiserver-ca"),
        ({"cert-manager.io/issuer": "x", "other/inject-ca-from": "y"}, ""),
    ],
)
def test_an_annotation_of_cert_manager_says_who_writes_the_bundle(annotations: dict[str, str] | None, by: str) -> None:
    assert webhook_state(configuration("", annotations=annotations), name="pods", since_ns=0).injected_by == by


def test_bundles_are_written_only_over_the_version_that_was_read() -> None:
    test, *writes = bundles_patch("9", ((A.authority,), (A.authority, B.authority)))
    assert test == {"op": "test", "path": "/metadata/resourceVersion", "value": "9"}
    assert [each["path"] for each in writes] == [f"/webhooks/{number}/clientConfig/caBundle" for number in range(2)]
    # "add" also replaces, where "replace" would fail without a value.
    assert {each["op"] for each in writes} == {"add"}
    assert [base64.b64decode(each["value"]) for each in writes] == [ONE.ca, ONE.ca + OTHER.ca]
