"""Where the API server is and who we are there: inside a cluster, from a kubeconfig, or as told.

kubernetes_asyncio is imported in one function, for kubeconfigs only, where its exec and OIDC plugins earn their price
(1.6 s and 112 MiB); inside a cluster two files say all there is.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec

_log: Final = logging.getLogger(__name__)

SERVICE_ACCOUNT_DIR: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
#: Projected tokens are renewed by kubelet long before they expire; reading them once a minute is soon enough.
REFRESH_S: Final = 60.0

#: Returns the value of the Authorization header, or "".
Authorization = Callable[[], Awaitable[str]]


class ConfigError(Exception):
    """Raised when it can't be told how to reach the API server."""


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach one API server under one identity."""

    #: ``https://host:port``, with a path if the server stands behind one.
    server: str
    #: PEM file of the cluster's CA; "" trusts the system's roots.
    ca_file: str = ""
    client_cert_file: str = ""
    client_key_file: str = ""
    #: Asked before every request, so that short-lived tokens stay fresh.
    authorization: Authorization | None = None
    verify: bool = True
    #: The name that the server's certificate is checked against, where it isn't the host's.
    tls_server_name: str = ""
    proxy: str = ""
    #: Of the kubeconfig's context, or of the pod; "" where neither says one.
    namespace: str = ""


def plain(server: str, *, ca_file: str = "", token: str = "") -> Credentials:
    """Return credentials as told."""
    return Credentials(server=server, ca_file=ca_file, authorization=_fixed(token) if token else None)


def in_cluster(
    *, environ: Mapping[str, str] = os.environ, service_account_dir: Path = SERVICE_ACCOUNT_DIR
) -> Credentials:
    """Return the credentials of the pod's service account.

    Raises ConfigError outside a cluster, naming what is missing.
    """
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise ConfigError("not in a cluster: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not both set")
    token_file, ca_file = service_account_dir / "token", service_account_dir / "ca.crt"
    for file in (token_file, ca_file):
        if not file.is_file():
            raise ConfigError(f"{file} is missing: is automountServiceAccountToken off?")
    return Credentials(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        ca_file=str(ca_file),
        authorization=TokenFile(token_file),
        namespace=_text(service_account_dir / "namespace"),
    )


async def from_kubeconfig(*, path: str = "", context: str = "") -> Credentials:
    """Return the credentials of a kubeconfig's context; without a path, kubectl's own rules apply.

    Raises ConfigError for a file that is missing or makes no sense, and when its plugin gives no credentials.
    """
    from kubernetes_asyncio import client, config  # noqa: PLC0415 - lazily: see the module's docstring

    configuration = client.Configuration()
    try:
        loader = await config.load_kube_config(
            config_file=path or None, context=context or None, client_configuration=configuration
        )
    except (config.ConfigException, OSError, ValueError, KeyError) as error:
        raise ConfigError(f"kubeconfig {path or '(default)'}: {error}") from error
    except Exception as error:  # what is no kubeconfig at all breaks the loader in any way
        raise ConfigError(f"{path or '(default)'} is not a kubeconfig{_where(error)}") from error
    return Credentials(
        server=configuration.host,
        ca_file=configuration.ssl_ca_cert or "",
        client_cert_file=configuration.cert_file or "",
        client_key_file=configuration.key_file or "",
        authorization=_KubeconfigToken(loader, configuration) if configuration.api_key else None,
        verify=configuration.verify_ssl,
        tls_server_name=configuration.tls_server_name or "",
        proxy=configuration.proxy or "",
        namespace=(loader.current_context or {}).get("context", {}).get("namespace") or "",
    )


def _where(error: Exception) -> str:
    """Where a file stops being YAML, if that is what is wrong."""
    import yaml  # noqa: PLC0415 - for those who name a file, as above

    from wire.yamlplace import why_not_yaml  # noqa: PLC0415 - imports it, too

    return f": {why_not_yaml(error)}" if isinstance(error, yaml.YAMLError) else ""


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8").strip() if path.is_file() else ""


class TokenFile:
    """Authorization by a token file that somebody else keeps fresh."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._value = ""
        self._read_at = 0.0

    async def __call__(self) -> str:
        """Return the header, from a read at most a minute old; an unreadable file leaves the last token in use."""
        now = anyio.current_time()
        if not self._value or now - self._read_at >= REFRESH_S:
            self._read()
            self._read_at = now
        return self._value

    def _read(self) -> None:
        # On the loop: the file is a few hundred bytes on a tmpfs.
        try:
            token = self._path.read_text(encoding="ascii").strip()
        except OSError as error:
            _log.warning("token file %s: %s", self._path, error)
            return
        if token:
            self._value = f"Bearer {token}"


class _KubeconfigToken:
    """Authorization by what kubernetes_asyncio's loader makes of the kubeconfig; it renews what has expired."""

    def __init__(self, loader: Any, configuration: Any) -> None:
        self._loader = loader
        self._configuration = configuration
        self._loaded_at = anyio.current_time()
        self._loading = anyio.Lock()

    async def __call__(self) -> str:
        async with self._loading:
            if anyio.current_time() - self._loaded_at >= REFRESH_S:
                await self._reload()
        return str(self._configuration.api_key.get("BearerToken", ""))

    async def _reload(self) -> None:
        try:
            await self._loader.load_and_set(self._configuration)
        except Exception as error:  # noqa: BLE001 - a plugin may fail in any way; the old token may live on
            _log.warning("credentials could not be renewed: %s", error)
        self._loaded_at = anyio.current_time()


def _fixed(token: str) -> Authorization:
    async def authorization() -> str:
        return f"Bearer {token}"

    return authorization
