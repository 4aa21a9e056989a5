"""Test mirrors, and downloads from a local server that answers correctly or fails."""

import contextlib
import http.server
import threading
import time

import pytest
from torch_geometric.datasets import TUDataset

import graphcl.datasets.fetch as fetch
from graphcl.datasets import load_dataset

ANSWERS = {"half": (200, 2), "missing": (404, 1), "busy": (503, 1), "to-file": (302, 1)}
"""First part of a request's path -> status, and the fraction 1/n of the file that is sent."""


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.path)
        kind, content = self.path.split("/")[1], self.server.content
        if kind == "silent":
            time.sleep(1)
        if kind == "garbled":
            self.wfile.write(b"\x00\x01 nothing like HTTP\r\n\r\n")
            return
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
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def test_download_once(server, root):
    for _ in range(2):
        assert [graph.num_nodes for graph in load_dataset("TINY", root, f"{server.url}/sets/")] == [3, 2, 3]
    assert server.asked == ["/sets/TINY.zip"]


def test_a_known_name_comes_from_the_public_server(server, root, monkeypatch, tmp_path, write_zip):
    monkeypatch.setattr(TUDataset, "url", f"{server.url}/public")
    server.content = (write_zip(tmp_path / "m", "MUTAG") / "MUTAG.zip").read_bytes()
    assert len(load_dataset("MUTAG", root)) == 3
    assert server.asked == ["/public/MUTAG.zip"]


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [("missing", "404"), ("busy", "503"), ("half", "broke off after"), ("to-file", "passwd' is not allowed"),
     ("garbled", "cannot download"), ("silent", "timed out")],
)  # fmt: skip
def test_download_fails(behaviour, words, server, refused, monkeypatch):
    monkeypatch.setattr(fetch, "TIMEOUT", 0.3)
    url = f"{server.url}/{behaviour}"
    assert refused("TINY", f"{url}/TINY.zip", words, "--mirror FOLDER", mirror=url).isprintable()


@pytest.mark.parametrize("url", ["http://", "http://[", "http://a b/", "http://127.0.0.1:port", "http://127.0.0.1:1"])
def test_malformed_urls_and_refused_connections(url, refused):
    refused("TINY", "cannot download", mirror=url)


def test_a_mirror_is_only_read(mirror, root):
    mirror.chmod(0o555)
    before = (mirror / "TINY.zip").read_bytes()
    assert len(load_dataset("TINY", root, mirror.as_uri())) == 3
    assert [path.read_bytes() for path in mirror.iterdir()] == [before]


@pytest.mark.parametrize(("name", "near"), [("PROTIENS", "PROTEINS"), ("mutag", "MUTAG"), ("Synthetic", "synthetic")])
def test_unknown_name_without_mirror(name, near, refused):
    refused(name, f"unknown data set {name!r}", near, "dataset_names()", f"{name}.zip", "--mirror FOLDER")


def test_folder_of_that_name(refused, tmp_path, monkeypatch):
    (tmp_path / "graphs").mkdir()
    monkeypatch.chdir(tmp_path)
    refused("graphs", "write './graphs'")


@pytest.mark.parametrize(
    ("name", "place", "words"),
    [
        ("TINY", "s3://bucket", ["file:// or an http(s):// URL", "s3://bucket"]),
        ("TINY", "{mirror}/none", ["none", "is not a folder with TINY.zip"]),
        ("TINY", "{mirror}/TINY.zip", ["is not a folder with TINY.zip"]),
        ("TINY", "a\0b", ["`mirror` 'a\\x00b' holds a NUL character"]),
        ("PROTIENS", "{mirror}", ["PROTIENS.zip", "did you mean PROTEINS.zip", "it holds: PROTEINS.zip, TINY.zip"]),
    ],
)
def test_mirrors_without_the_archive(name, place, words, refused, mirror, write_zip):
    write_zip(mirror, "PROTEINS")
    refused(name, *words, mirror=place.format(mirror=mirror))
