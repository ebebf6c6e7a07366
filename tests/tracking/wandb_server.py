"""As much of W&B's server as its client needs to record runs, on loopback."""

from __future__ import annotations

import gzip
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class ServedRun:
    """A run as the server has it. history: by line number; W&B writes lines, it does not append."""

    group: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    history: dict[int, dict[str, Any]] = field(default_factory=dict)
    exit_code: int | None = None
    rewritten: int = 0

    @property
    def steps(self) -> list[int]:
        return [self.history[line]["_step"] for line in sorted(self.history)]


class WandbServer:
    """`silent`: requests are taken and not answered, until the server closes."""

    def __init__(self) -> None:
        self.runs: dict[str, ServedRun] = {}
        self.files: dict[str, bytes] = {}
        self.silent = False
        self.closing = threading.Event()
        self.lock = threading.Lock()
        self.http = _Server(("127.0.0.1", 0), _Handler)
        self.http.owner = self  # type: ignore[attr-defined]
        self.url = f"http://127.0.0.1:{self.http.server_port}"

    def named(self) -> dict[str, ServedRun]:
        """By the part of the id after the last dash: a trial's id, or ``summary``."""
        return {name.rsplit("-", 1)[1]: run for name, run in self.runs.items()}

    def graphql(self, operation: str, variables: dict[str, Any]) -> dict[str, Any]:
        name = variables.get("name") or ""
        if operation == "RunResumeStatus":
            return {"model": self._resume_status(name)}
        if operation == "UpsertBucket":
            inserted = name not in self.runs
            run = self.runs.setdefault(name, ServedRun())
            run.group = variables.get("groupName") or run.group
            if variables.get("config"):
                run.config |= json.loads(variables["config"])
            project = {"id": "P", "name": "project", "entity": {"id": "E", "name": "team"}}
            bucket = {"id": f"id-{name}", "name": name, "displayName": name, "project": project}
            bucket |= {"description": None, "config": None, "sweepName": None}
            bucket |= {"historyLineCount": len(run.history)}
            return {"upsertBucket": {"bucket": bucket, "inserted": inserted}}
        if operation == "CreateRunFiles":
            files = [
                {"name": f, "uploadUrl": f"{self.url}/upload/{variables['run']}/{f}"}
                for f in variables["files"]
            ]
            return {"createRunFiles": {"runID": "R", "uploadHeaders": [], "files": files}}
        if operation == "Viewer":
            viewer = {"id": "U", "entity": "team", "username": "somebody", "flags": "{}"}
            return {"viewer": {**viewer, "teams": {"edges": []}}}
        if operation == "ArtifactType":
            return {"project": {"artifact": None}}
        if operation == "ServerFeaturesQuery":
            return {"serverInfo": {"features": []}}
        if operation == "CreateArtifact":  # as of one whose content the server has already
            sequence = {"latestArtifact": {"id": "A"}}
            artifact = {"id": "A", "state": "COMMITTED", "artifactSequence": sequence}
            return {"createArtifact": {"artifact": artifact}}
        return {}

    def _resume_status(self, name: str) -> dict[str, Any]:
        project = {"id": "P", "name": "project", "entity": {"id": "E", "name": "team"}}
        run = self.runs.get(name)
        if run is None:
            return {**project, "bucket": None}
        tail = [json.dumps(run.history[max(run.history)])] if run.history else []
        bucket = {
            "id": f"id-{name}",
            "name": name,
            "displayName": name,
            "summaryMetrics": "{}",
            "config": json.dumps(run.config),
            "historyLineCount": len(run.history),
            "historyTail": json.dumps(tail),
            "eventsLineCount": 0,
            "eventsTail": "[]",
            "logLineCount": 0,
            "tags": [],
            "notes": None,
            "wandbConfig": json.dumps({"t": 1}),
        }
        return {**project, "bucket": bucket}

    def stream(self, name: str, data: dict[str, Any]) -> None:
        run = self.runs[name]
        written = data.get("files", {}).get("wandb-history.jsonl", {})
        for line, text in enumerate(written.get("content", ()), written.get("offset", 0)):
            run.rewritten += line in run.history
            run.history[line] = json.loads(text)
        if data.get("complete"):
            run.exit_code = data["exitcode"]


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: clients that are killed break their connections."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: Any) -> None:
        """Nothing."""

    def do_POST(self) -> None:
        server: WandbServer = self.server.owner  # type: ignore[attr-defined]
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        if server.silent:
            server.closing.wait()
            return
        answer: dict[str, Any] = {}
        with server.lock:
            if self.path.endswith("/graphql"):
                request = json.loads(body)
                found = re.search(r"(?:query|mutation)\s+(\w+)", request["query"])
                operation = found.group(1) if found else ""
                answer = {"data": server.graphql(operation, request.get("variables") or {})}
            elif self.path.endswith("/file_stream"):
                server.stream(self.path.split("/")[-2], json.loads(body))
            elif self.path.startswith("/upload/"):
                server.files[self.path.removeprefix("/upload/")] = body
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_PUT = do_POST


@contextmanager
def wandb_server() -> Iterator[WandbServer]:
    server = WandbServer()
    thread = threading.Thread(target=server.http.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.closing.set()
        server.http.shutdown()
        server.http.server_close()
