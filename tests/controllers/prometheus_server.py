"""A Prometheus of this machine.

It is built without the page in the browser, which its Go module lacks, and without service discovery: what it scrapes
is named by address.
"""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from typing_extensions import override

from tools.controllers.catalogue import PROMETHEUS
from tools.controllers.program import ensure
from tools.flags import LOOPBACK
from tools.ports import free_port
from tools.processes import Programs, wait_until

_READY_WITHIN_S: Final = 60.0
_OK: Final = 200


class PrometheusServer(Programs):
    """``with PrometheusServer(folder, configuration) as server:`` is ready, and ``server.url`` answers queries.

    ``configuration``: prometheus.yml. ``folder``: where its data and its log are. ``port``: where it listens.
    """

    def __init__(self, folder: Path, configuration: Mapping[str, Any], *, port: int | None = None) -> None:
        super().__init__(folder)
        self._configuration = configuration
        self._port = port or free_port()

    @property
    def url(self) -> str:
        """Where it is asked."""
        return f"http://{LOOPBACK}:{self._port}"

    def resident_kib(self) -> int:
        """Its resident memory."""
        (server,) = self._family.children
        return server.resident_kib()

    def get(self, path: str, **query: str) -> Any:
        """Return ``data`` of what its HTTP API answers at ``/api/v1/PATH``. Raises ValueError when it refuses."""
        code, body = self._send(f"/api/v1/{path}?{urlencode(query)}")
        answer = json.loads(body)
        if code != _OK or answer["status"] != "success":
            raise ValueError(f"{path}: {code} {answer.get('error')}")
        return answer["data"]

    @override
    def _start(self) -> None:
        program = ensure(PROMETHEUS).program
        # JSON is YAML.
        (self.folder / "prometheus.yml").write_text(json.dumps(self._configuration))
        command = [str(program), f"--config.file={self.folder / 'prometheus.yml'}"]
        command += [f"--storage.tsdb.path={self.folder / 'data'}", f"--web.listen-address={LOOPBACK}:{self._port}"]
        self._family.start("prometheus", command)
        wait_until(self._is_ready, self._family, "prometheus to be ready", within_s=_READY_WITHIN_S)

    def _is_ready(self) -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self._send("/-/ready")[0] == _OK
        return False

    def _send(self, path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(LOOPBACK, self._port, timeout=10)
        with contextlib.closing(connection):
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
