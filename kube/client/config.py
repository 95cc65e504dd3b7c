"""Where the API server is and who we are there: inside a cluster, from a kubeconfig, or as options say.

A kubeconfig is read as kubectl reads it: several files as one, a context, its cluster and its user. kubernetes_asyncio
is imported in one function, for users of kubeconfigs that need a plugin or an identity provider (exec, OIDC), where it
earns its price (1 s of CPU time and 112 MiB). Inside a cluster two files say all there is.
"""

from __future__ import annotations

import base64
import binascii
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

import anyio
import msgspec
import yaml

from wire.yaml_text import why_not_yaml

_Loader: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_LISTS: Final = ("clusters", "contexts", "users")
#: Keys whose values are paths, relative to the folder of the file that they are in.
_PATHS: Final = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
_PLUGINS: Final = ("exec", "auth-provider")
Fields = Mapping[str, Any]


class BadKubeconfig(Exception):
    """Raised for a file that is no kubeconfig, or that lacks what is named; the message is one line."""


class Chosen(msgspec.Struct, frozen=True):
    """What a context names. ``user`` is empty where it names none."""

    cluster: Fields
    user: Fields
    namespace: str

    @property
    def needs_plugin(self) -> bool:
        """Whether a program or an identity provider has to be asked for the user's credentials."""
        return any(self.user.get(key) for key in _PLUGINS)


class Kubeconfig(msgspec.Struct, frozen=True):
    """All files together. ``named``: how to call them in messages."""

    named: str
    current: str
    clusters: Mapping[str, Fields]
    contexts: Mapping[str, Fields]
    users: Mapping[str, Fields]

    def chosen(self, *, context: str = "", cluster: str = "") -> Chosen:
        """Return what a context ("": the current one) names, with another cluster if one is named.

        Raises BadKubeconfig for a name that is not there.
        """
        name = context or self.current
        if not name and not cluster:
            self._refuse("no current-context is set; name one by --context")
        found = self._one("context", self.contexts, name) if name else {}
        user = str(found.get("user") or "")
        where = cluster or str(found.get("cluster") or "")
        return Chosen(
            cluster=self._one("cluster", self.clusters, where),
            user=self._one("user", self.users, user) if user else {},
            namespace=str(found.get("namespace") or ""),
        )

    def _one(self, kind: str, those: Mapping[str, Fields], name: str) -> Fields:
        if name not in those:
            known = f"; it has {', '.join(sorted(those))}" if those else ""
            self._refuse(f"no {kind} {name!r}{known}")
        return those[name]

    def _refuse(self, why: str) -> NoReturn:
        raise BadKubeconfig(f"kubeconfig {self.named}: {why}")


def read(path: str) -> Kubeconfig:
    """Read a file, or several as in KUBECONFIG: of each name, and of current-context, the first one counts.

    Files of several that are not there are left out. Raises BadKubeconfig.
    """
    paths = [Path(each) for each in path.split(os.pathsep) if each]
    there = [each for each in paths if each.is_file()] if len(paths) > 1 else paths
    merged: dict[str, dict[str, Fields]] = {name: {} for name in _LISTS}
    current = ""
    for each in there:
        told = _document(each)
        current = current or str(told.get("current-context") or "")
        for name in _LISTS:
            for key, fields in _named(told.get(name), name.removesuffix("s"), each).items():
                merged[name].setdefault(key, fields)
    return Kubeconfig(path, current, **merged)


def data(fields: Fields, key: str) -> bytes:
    """Return what ``key-data`` holds in base64, b"" without it. Raises BadKubeconfig."""
    try:
        return base64.b64decode(str(fields.get(f"{key}-data") or ""), validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadKubeconfig(f"kubeconfig: {key}-data is not base64") from error


def impersonation(user: Fields) -> tuple[tuple[str, str], ...]:
    """Return the headers of a user that acts as another one."""
    headers = [("Impersonate-User", user.get("as")), ("Impersonate-Uid", user.get("as-uid"))]
    headers += [("Impersonate-Group", group) for group in _list(user.get("as-groups"))]
    extra = user.get("as-user-extra")
    for key, values in extra.items() if isinstance(extra, dict) else ():
        headers += [(f"Impersonate-Extra-{key}", value) for value in _list(values)]
    return tuple((name, str(value)) for name, value in headers if value)


def _document(path: Path) -> Fields:
    try:
        told = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)  # noqa: S506 - a safe loader
    except OSError as error:
        raise BadKubeconfig(f"kubeconfig {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        why = why_not_yaml(error) if isinstance(error, yaml.YAMLError) else "not UTF-8 text"
        raise BadKubeconfig(f"{path} is not a kubeconfig: {why}") from error
    if not isinstance(told, dict):
        raise BadKubeconfig(f"{path} is not a kubeconfig")
    return told


def _named(listed: object, kind: str, path: Path) -> dict[str, Fields]:
    """The entries of a list by their names, with absolute paths; of two with one name the first."""
    found: dict[str, Fields] = {}
    if not isinstance(listed, list | None):
        raise BadKubeconfig(f"{path} is not a kubeconfig: {kind}s is no list")
    for entry in listed or ():
        fields = entry.get(kind) or {} if isinstance(entry, dict) else None
        if not isinstance(fields, dict):
            raise BadKubeconfig(f"{path} is not a kubeconfig: a {kind} has no fields")
        paths = {key: str(path.parent / fields[key]) for key in _PATHS if fields.get(key)}
        found.setdefault(str(entry.get("name") or ""), {**fields, **paths})
    return found


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()


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
        chosen = read(path).chosen(context=context, cluster=cluster)
        where = _cluster(chosen)
        if chosen.needs_plugin:
            return await _by_plugin(where, path, context)
        return await _by_fields(where, chosen, path)
    except BadKubeconfig as error:
        raise ConfigError(str(error)) from error


def _cluster(chosen: Chosen) -> Credentials:
    """How to reach the cluster, under no identity yet. Raises BadKubeconfig."""
    fields, ca_data = chosen.cluster, data(chosen.cluster, "certificate-authority")
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
        headers=impersonation(chosen.user),
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
    cert, key = data(user, "client-certificate"), data(user, "client-key")
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
