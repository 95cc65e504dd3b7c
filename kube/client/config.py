"""Where the API server is and who we are there: inside a cluster, from a kubeconfig, or as told.

kubernetes_asyncio is imported in one function, for users of kubeconfigs that need a plugin or an identity provider
(exec, OIDC), where it earns its price (1 s of CPU time and 112 MiB). Other kubeconfigs are read by
kube/client/kubeconfig.py; inside a cluster two files say all there is.
"""

from __future__ import annotations

import base64
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec

from kube.client import kubeconfig
from kube.client.kubeconfig import BadKubeconfig, Chosen

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
    #: What a kubeconfig has in it instead of naming files: certificates of the cluster's CA, ours, and its key (PEM).
    ca_data: bytes = b""
    client_cert_data: bytes = b""
    client_key_data: bytes = b""
    #: Names and values that each request has: who else to act as.
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def has_certificate(self) -> bool:
        """Whether a certificate says who we are."""
        return bool(self.client_cert_file or self.client_cert_data)


def plain(server: str, *, ca_file: str = "", token: str = "") -> Credentials:
    """Return credentials as told."""
    return Credentials(server=server, ca_file=ca_file, authorization=_fixed(f"Bearer {token}") if token else None)


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


async def from_kubeconfig(*, path: str, context: str = "", cluster: str = "") -> Credentials:
    """Return the credentials of a kubeconfig's context ("": its current one), with another cluster if one is named.

    Raises ConfigError for a file that is missing or makes no sense, and when its plugin gives no credentials.
    """
    try:
        chosen = kubeconfig.read(path).chosen(context=context, cluster=cluster)
        where = _cluster(chosen)
        if chosen.needs_plugin:
            return await _by_plugin(where, path, context)
        return await _by_fields(where, chosen, path)
    except BadKubeconfig as error:
        raise ConfigError(str(error)) from error


def _cluster(chosen: Chosen) -> Credentials:
    """How to reach the cluster, under no identity yet. Raises BadKubeconfig."""
    fields, ca_data = chosen.cluster, kubeconfig.data(chosen.cluster, "certificate-authority")
    if not fields.get("server"):
        raise BadKubeconfig("kubeconfig: the cluster has no server")
    return Credentials(
        server=str(fields["server"]).rstrip("/"),
        ca_file="" if ca_data else str(fields.get("certificate-authority") or ""),
        ca_data=ca_data,
        verify=not fields.get("insecure-skip-tls-verify"),
        tls_server_name=str(fields.get("tls-server-name") or ""),
        proxy=str(fields.get("proxy-url") or ""),
        namespace=chosen.namespace,
        headers=kubeconfig.impersonation(chosen.user),
    )


async def _by_fields(where: Credentials, chosen: Chosen, path: str) -> Credentials:
    """Add the identity that the fields of the user hold or name. Raises ConfigError, BadKubeconfig."""
    user = chosen.user
    authorization: Authorization | None = None
    if user.get("tokenFile"):
        authorization = TokenFile(Path(str(user["tokenFile"])))
        if not await authorization():
            raise ConfigError(f"kubeconfig {path}: tokenFile {user['tokenFile']} is missing or empty")
    elif user.get("token"):
        authorization = _fixed(f"Bearer {user['token']}")
    elif user.get("username") and user.get("password"):
        told = base64.b64encode(f"{user['username']}:{user['password']}".encode())
        authorization = _fixed(f"Basic {told.decode()}")
    cert, key = kubeconfig.data(user, "client-certificate"), kubeconfig.data(user, "client-key")
    return msgspec.structs.replace(
        where,
        authorization=authorization,
        client_cert_data=cert,
        client_cert_file="" if cert else str(user.get("client-certificate") or ""),
        client_key_data=key,
        client_key_file="" if key else str(user.get("client-key") or ""),
    )


async def _by_plugin(where: Credentials, path: str, context: str) -> Credentials:
    """Add the identity that the user's plugin or identity provider gives. Raises ConfigError."""
    from kubernetes_asyncio import client, config  # noqa: PLC0415 - lazily: see the module's docstring

    configuration = client.Configuration()
    try:
        loader = await config.load_kube_config(
            config_file=path, context=context or None, client_configuration=configuration
        )
    except (config.ConfigException, OSError, ValueError, KeyError) as error:
        raise ConfigError(f"kubeconfig {path}: {error}") from error
    except Exception as error:  # a plugin may fail in any way
        raise ConfigError(f"kubeconfig {path}: its plugin gives no credentials: {error}") from error
    return msgspec.structs.replace(
        where,
        client_cert_file=configuration.cert_file or "",
        client_key_file=configuration.key_file or "",
        authorization=_KubeconfigToken(loader, configuration) if configuration.api_key else None,
    )


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


def _fixed(value: str) -> Authorization:
    async def authorization() -> str:
        return value

    return authorization
