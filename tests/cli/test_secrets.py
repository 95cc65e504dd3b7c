"""A component that is told everything by a server, its own token too, writes none of it into its log."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

ROOT = Path(__file__).parents[2]
TOKEN = "planted-opaque-token-0123456789"


class Echo(http.server.BaseHTTPRequestHandler):
    """Answers every request with 500, and with its own headers in the words of the error."""

    heard: ClassVar[set[str]]

    def do_GET(self) -> None:
        said = self.headers.get("Authorization", "")
        self.heard.add(said)
        body = json.dumps(
            {"kind": "Status", "code": 500, "reason": "InternalError", "message": f"Authorization: {said}\nforged line"}
        ).encode()
        self.send_response(500)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_PATCH = do_PUT = do_GET  # noqa: N815 - as http.server looks for them


@pytest.fixture
def server() -> Iterator[tuple[str, type[Echo]]]:
    class Own(Echo):
        heard: ClassVar[set[str]] = set()

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Own) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{listening.server_address[1]}", Own
        listening.shutdown()
        thread.join()


@pytest.mark.thorough
def test_a_token_is_in_no_line_of_a_component_at_debug_level(server: tuple[str, type[Echo]], tmp_path: Path) -> None:
    url, echo = server
    token = tmp_path / "token"
    token.write_text(TOKEN)
    command = [sys.executable, "-m", "cli.main", "binder", "--log-level=debug", "--server", url, "--token-file"]
    with subprocess.Popen(
        [*command, str(token)], cwd=ROOT, env={**os.environ}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        lines = []
        try:
            for line in process.stderr:
                lines.append(line)
                if "forged line" in line:
                    break
        finally:
            process.kill()
    assert f"Bearer {TOKEN}" in echo.heard
    assert TOKEN not in "".join(lines)
    assert "(removed)" in lines[-1]
    assert [json.loads(line)["level"] for line in lines]
