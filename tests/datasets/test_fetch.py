"""Test mirrors, and downloads from a local server that answers correctly or fails."""

import contextlib
import http.server
import socket
import threading
import time

import pytest
from torch_geometric.datasets import TUDataset

import graphcl.datasets.cache as fetch
from graphcl.datasets import load_dataset
from tests.datasets.conftest import write_zip

ANSWERS = {"half": (200, 2), "missing": (404, 1), "busy": (503, 1), "to-file": (302, 1)}
"""First part of a request's path -> status, and the fraction 1/n of the file that is sent."""


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.path)
        kind, content = self.path.split("/")[1], self.server.content
        if kind == "silent":
            time.sleep(1)
        code, part = ANSWERS.get(kind, (200, 1))
        self.send_response(code, "\x1b[2Jbusy" if kind == "busy" else None)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Location", "file:///etc/passwd")
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            self.wfile.write(content[: len(content) // part])

    def log_message(self, *_):
        pass


@pytest.fixture
def server(mirror, monkeypatch):
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.content, running.asked = (mirror / "TINY.zip").read_bytes(), []
        running.url = f"http://127.0.0.1:{running.server_port}"
        threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02}).start()
        yield running
        running.shutdown()


def test_download_once_from_a_mirror_or_the_public_server(server, mirror, root, monkeypatch, tmp_path):
    for _ in range(2):
        assert [graph.num_nodes for graph in load_dataset("TINY", root, f"{server.url}/sets/")] == [3, 2, 3]
    monkeypatch.setattr(TUDataset, "url", f"{server.url}/public")
    server.content = (write_zip(tmp_path / "m", "MUTAG") / "MUTAG.zip").read_bytes()
    assert len(load_dataset("MUTAG", root)) == 3
    assert server.asked == ["/sets/TINY.zip", "/public/MUTAG.zip"]
    assert len(load_dataset("TINY", root / "other", mirror.as_uri())) == 3
    assert [path.name for path in mirror.iterdir()] == ["TINY.zip"]  # a mirror is only read


def test_download_fails(server, refused, monkeypatch):
    monkeypatch.setattr(fetch, "TIMEOUT", 0.3)
    for behaviour, words in {
        "missing": "404", "busy": "503", "half": "broke off after", "to-file": "passwd' is not allowed",
        "silent": "timed out",
    }.items():  # fmt: skip
        url = f"{server.url}/{behaviour}"
        assert refused("TINY", f"{url}/TINY.zip", words, "--mirror FOLDER", mirror=url).isprintable()
    for url in ("http://[", "http://127.0.0.1:port", "http://127.0.0.1:1"):
        refused("TINY", "cannot download", mirror=url)


def test_a_name_that_does_not_resolve_is_given_up_soon(refused, monkeypatch):
    answered = threading.Event()
    monkeypatch.setattr(fetch, "CONNECT", 0.1)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: [answered.wait(20)][1:])
    started = time.monotonic()
    refused("MUTAG", f"cannot download {TUDataset.url}/MUTAG.zip", "no connection to", "--dataset synthetic")
    assert time.monotonic() - started < 5
    answered.set()


def test_unknown_names_and_mirrors_without_the_archive(refused, mirror, tmp_path, monkeypatch):
    for name, near in (("PROTIENS", "PROTEINS"), ("mutag", "MUTAG"), ("Synthetic", "synthetic")):
        refused(name, f"unknown data set {name!r}", near, "dataset_names()", f"{name}.zip", "--mirror FOLDER")
    (tmp_path / "graphs").mkdir()
    monkeypatch.chdir(tmp_path)
    refused("graphs", "write './graphs'")
    write_zip(mirror, "PROTEINS")
    refused("TINY", "s3://bucket", "is not a folder with TINY.zip", mirror="s3://bucket")
    refused("TINY", "none", "is not a folder with TINY.zip", mirror=mirror / "none")
    words = ("PROTIENS.zip", "did you mean PROTEINS.zip", "it holds: PROTEINS.zip, TINY.zip")
    refused("PROTIENS", *words, mirror=mirror)
