"""Pulling from a Hugging Face repository, from a hub in this process."""

import hashlib
import random
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from edgellm import catalog
from edgellm.catalog.entry import HubFile
from edgellm.errors import DownloadError

pytest.importorskip("huggingface_hub")

CONTENT = random.Random(2).randbytes(25_000_000)
SHA = hashlib.sha256(CONTENT).hexdigest()
COMMIT = "c" * 40


class Hub(ThreadingHTTPServer):
    """Serves one file as hubs do; `cut` is the number of bytes after which it drops one connection."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that hang up, as those of some tests do, are no error of the hub."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content, self.etag = CONTENT, SHA
        self.requests: list[tuple[str, str, str | None]] = []
        self.cut: int | None = None


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, *, body: bool) -> None:
        hub, asked = self.server, self.headers.get("Range")
        hub.requests.append((self.command, self.path, asked))
        if self.path not in [f"/o/r/resolve/{revision}/d/m.gguf" for revision in ("main", "v1", COMMIT)]:
            self.send_response(404)
            self.send_header("X-Error-Code", "EntryNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        start = int(asked.removeprefix("bytes=").split("-")[0]) if asked else 0
        data = hub.content[start:]
        self.send_response(206 if asked else 200)
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{len(hub.content) - 1}/{len(hub.content)}")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", f'"{hub.etag}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if body:
            self.wfile.write(data[: hub.cut])
            if hub.cut is not None:
                hub.cut = None
                self.close_connection = True


@pytest.fixture
def hub(monkeypatch, tmp_path) -> Iterator[Hub]:
    with Hub() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        yield server
        server.shutdown()
        thread.join()


def gets(hub: Hub) -> list[str | None]:
    return [asked for command, _, asked in hub.requests if command == "GET"]


def test_file_is_fetched_by_its_name(hub, home):
    calls: list[tuple[int, int | None, str]] = []
    path = catalog.resolve("hf:o/r/d/m.gguf", progress=lambda *call: calls.append(call))
    assert path == home / "models" / "hf" / "o" / "r" / "d" / "m.gguf"
    assert path.read_bytes() == CONTENT
    assert calls[-1] == (len(CONTENT), len(CONTENT), "verifying")
    assert ("downloading", len(CONTENT)) in {(phase, total) for _, total, phase in calls}
    assert sorted(item.name for item in path.parent.iterdir()) == [".m.gguf.lock", "m.gguf"]
    before = len(hub.requests)
    assert catalog.resolve("hf:o/r/d/m.gguf") == path
    assert len(hub.requests) == before
    assert [item.name for item in catalog.cached()] == ["hf:o/r/d/m.gguf"]


def test_revision_is_another_file(hub):
    path = catalog.pull("hf:o/r/d/m.gguf@v1")
    assert path.parts[-3:] == ("r@v1", "d", "m.gguf")
    assert path.read_bytes() == CONTENT
    assert all("/resolve/main/" not in path for _, path, _ in hub.requests)


def test_nothing_is_printed(hub, capfd):
    catalog.pull("hf:o/r/d/m.gguf")
    assert capfd.readouterr() == ("", "")


def test_file_that_is_not_what_the_hub_announced_is_refused(hub, home):
    hub.content = bytes(len(CONTENT))
    with pytest.raises(DownloadError) as caught:
        catalog.pull("hf:o/r/d/m.gguf")
    assert SHA in str(caught.value)
    assert hashlib.sha256(hub.content).hexdigest() in str(caught.value)
    assert not list((home / "models").rglob("m.gguf"))


def test_etag_that_is_no_sha256_is_not_taken_for_one(hub):
    hub.etag = "0" * 40
    assert catalog.pull("hf:o/r/d/m.gguf").read_bytes() == CONTENT


def test_catalog_hash_and_size_count_for_hub_files_too(hub, know):
    know(bytes(len(CONTENT)), HubFile("o", "r", "d/m.gguf"))
    with pytest.raises(DownloadError, match=SHA):
        catalog.pull("tiny")
    hub.requests.clear()
    know(b"short", HubFile("o", "r", "d/m.gguf"))
    with pytest.raises(DownloadError, match="where the catalog says 5"):
        catalog.pull("tiny")
    assert gets(hub) == []
    know(CONTENT, HubFile("o", "r", "d/m.gguf", "v1"))
    assert catalog.pull("tiny").read_bytes() == CONTENT


def test_stopped_download_goes_on_where_it_was(hub, home):
    class Stop(Exception):
        pass

    def stop(done: int, total: int | None, phase: str) -> None:
        if done > 15_000_000:
            raise Stop

    with pytest.raises(Stop):
        catalog.pull("hf:o/r/d/m.gguf", progress=stop)
    assert not list((home / "models").rglob("m.gguf"))
    hub.requests.clear()
    assert catalog.pull("hf:o/r/d/m.gguf").read_bytes() == CONTENT
    (asked,) = gets(hub)
    assert asked is not None
    assert int(asked.removeprefix("bytes=").split("-")[0]) >= 10_000_000


def test_stopped_download_of_another_version_begins_anew(hub):
    class Stop(Exception):
        pass

    def stop(done: int, total: int | None, phase: str) -> None:
        if done > 15_000_000:
            raise Stop

    with pytest.raises(Stop):
        catalog.pull("hf:o/r/d/m.gguf", progress=stop)
    hub.content = CONTENT[::-1]
    hub.etag = hashlib.sha256(hub.content).hexdigest()
    assert catalog.pull("hf:o/r/d/m.gguf").read_bytes() == CONTENT[::-1]


def test_dropped_connection_is_taken_up_again(hub):
    hub.cut = 12_000_000
    assert catalog.pull("hf:o/r/d/m.gguf").read_bytes() == CONTENT
    assert [asked is not None for asked in gets(hub)] == [False, True]


def test_missing_file_and_missing_hub_say_what_to_do(hub, monkeypatch):
    with pytest.raises(DownloadError, match=r"cannot fetch hf:o/r/absent.gguf: .*check the name, the network"):
        catalog.pull("hf:o/r/absent.gguf")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(DownloadError, match=r"cannot fetch hf:o/r/d/m.gguf: .*check the name, the network"):
        catalog.pull("hf:o/r/d/m.gguf")


def test_without_the_extra_the_error_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(DownloadError, match=r"pip install edgellm\[hf\]"):
        catalog.pull("hf:o/r/d/m.gguf")
