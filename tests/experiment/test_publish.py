"""`results: s3://...`: what is left of a run is stored in the bucket. A real S3 service."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from small_runs import SmallRun, configure

from tao_ray.experiment.preflight import results_checks
from tao_ray.experiment.publish import bucket_checks, publish
from tao_ray.experiment.result import write_result
from tao_ray.experiment.run_dir import results_root
from tao_ray.storage import open_storage

BUCKET = "s3://bucket/hpo"


class NoDelete(BaseHTTPRequestHandler):
    """Hands requests on to an S3 service, but refuses to delete."""

    upstream = ""

    def handle_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.command == "DELETE" or "delete" in self.path.split("?")[-1]:
            self.answer(403, b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>", {})
            return
        link = http.client.HTTPConnection(urlsplit(self.upstream).netloc)
        link.request(self.command, self.path, body, dict(self.headers))
        found = link.getresponse()
        self.answer(found.status, found.read(), dict(found.getheaders()))

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_any

    def answer(self, code: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(code)
        for name, value in headers.items():
            if name.lower() in ("etag", "content-type") or name.lower().startswith("x-amz"):
                self.send_header(name, value)
        size = headers.get("Content-Length", len(body)) if self.command == "HEAD" else len(body)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def undeletable(
    s3_endpoint: str, s3_environment: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    handler = type("Handler", (NoDelete,), {"upstream": s3_endpoint})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("S3_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
    yield
    server.shutdown()
    server.server_close()


def test_a_run_with_its_results_in_a_bucket(
    tmp_path: Path, s3_environment: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = SmallRun(configure(tmp_path, results=BUCKET))
    assert run.run_dir.path.parent == tmp_path / "runs" / "small"
    state = run.search()
    result = write_result(run.plan, run.run_dir, state, run.platform, "done", "")
    line = publish(run.plan, run.run_dir, result, run.platform, run.journal)
    assert line is not None
    assert f"stored: {BUCKET}/{run.run_dir.id} (" in line
    assert run.journal.read()[-1].data["uri"] == f"{BUCKET}/{run.run_dir.id}"

    storage = open_storage(BUCKET)
    storage.get_dir(f"{run.run_dir.id}/result.json", tmp_path / "fetched.json")
    fetched = json.loads((tmp_path / "fetched.json").read_text())
    assert fetched == json.loads(run.run_dir.result.read_text())
    checkpoint = fetched["best"]["checkpoint"]
    assert checkpoint["uri"].startswith(f"{BUCKET}/{run.run_dir.id}/checkpoint/model_epoch_")
    key = checkpoint["uri"].removeprefix(f"{BUCKET}/")
    storage.get_dir(key, tmp_path / "checkpoint")
    assert (tmp_path / "checkpoint").read_bytes() == Path(checkpoint["path"]).read_bytes()
    storage.get_dir(f"{run.run_dir.id}/best_spec.yaml", tmp_path / "spec.yaml")
    assert yaml.safe_load((tmp_path / "spec.yaml").read_text()) == fetched["best"]["spec"]
    # Again, as a resumed run does.
    assert publish(run.plan, run.run_dir, result, run.platform, run.journal) == line


def test_a_run_is_not_lost_over_its_bucket(
    tmp_path: Path, s3_environment: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = SmallRun(configure(tmp_path, results="s3://nobody-has-made-this"))
    result = write_result(run.plan, run.run_dir, run.search(), run.platform, "done", "")
    line = publish(run.plan, run.run_dir, result, run.platform, run.journal)
    assert line is not None
    assert line.startswith("not stored in s3://nobody-has-made-this: ")
    assert f"tao-ray resume {run.run_dir.path}" in line
    assert run.run_dir.result.is_file()


def test_without_a_bucket_nothing_is_stored(tmp_path: Path) -> None:
    run = SmallRun(configure(tmp_path))
    result = write_result(run.plan, run.run_dir, run.search(), run.platform, "done", "")
    assert publish(run.plan, run.run_dir, result, run.platform, run.journal) is None


def test_a_bucket_is_tried_before_a_run(
    tmp_path: Path, s3_environment: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = configure(tmp_path, results=BUCKET)
    assert results_checks(results_root(config.results))[0].detail.startswith(f"{tmp_path}/runs, ")
    before = open_storage(BUCKET).list()
    (check,) = bucket_checks(config)
    assert check.ok, check
    assert open_storage(BUCKET).list() == before
    (check,) = bucket_checks(configure(tmp_path, results="s3://no-such-bucket"))
    assert not check.ok
    assert "a probe cannot be stored" in check.detail


@pytest.mark.parametrize("mode", ["auto", "manual"])
def test_a_bucket_that_nothing_can_be_deleted_from(
    tmp_path: Path, undeletable: None, mode: str
) -> None:
    config = configure(tmp_path, results=f"{BUCKET}-{mode}", retention={"mode": mode})
    (check,) = bucket_checks(config)
    assert check.ok is (mode == "manual")
    if mode == "auto":
        assert "a probe cannot be deleted again" in check.detail
        assert "s3:DeleteObject" in check.remedy
        assert "--set retention.mode=manual" in check.remedy
