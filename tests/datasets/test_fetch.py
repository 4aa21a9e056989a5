"""Mirrors and the network: a server on this machine stands for the public one."""

import http.server
import socket
import threading
import time

import pytest
from torch_geometric.datasets import TUDataset

import graphcl.datasets.fetch as fetch
from graphcl.datasets import dataset_names, load_dataset
from graphcl.errors import InputError


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.path)
        behaviour = self.path.split("/")[1]
        if behaviour == "silent":
            time.sleep(1.5)
            return
        if behaviour == "missing":
            self.send_error(404)
            return
        if behaviour == "busy":
            self.send_error(503)
            return
        if behaviour == "garbled":
            self.wfile.write(b"\x00\x01 nothing like HTTP\r\n\r\n")
            return
        content = self.server.content
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if behaviour == "half" else content)

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
    dataset = load_dataset("TINY", root, f"{server.url}/sets/")
    assert [graph.num_nodes for graph in dataset] == [3, 2, 3]
    assert server.asked == ["/sets/TINY.zip"]
    load_dataset("TINY", root, f"{server.url}/sets/")
    assert server.asked == ["/sets/TINY.zip"]
    assert [path.name for path in root.iterdir()] == ["TINY"]


def test_known_name_comes_from_the_public_server(server, root, monkeypatch, tmp_path, write_zip):
    monkeypatch.setattr(TUDataset, "url", f"{server.url}/public")
    server.content = (write_zip(tmp_path / "m", "MUTAG") / "MUTAG.zip").read_bytes()
    assert len(load_dataset("MUTAG", root)) == 3
    assert server.asked == ["/public/MUTAG.zip"]


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        ("missing", "HTTP 404"),
        ("busy", "HTTP 503"),
        ("half", "broke off after"),
        ("garbled", "cannot download"),
        ("silent", "timed out"),
    ],
)
def test_download_fails(behaviour, words, server, refused, monkeypatch):
    monkeypatch.setattr(fetch, "TIMEOUT", 0.3)
    url = f"{server.url}/{behaviour}"
    refused("TINY", f"cannot download {url}/TINY.zip", words, "--mirror FOLDER", "'synthetic'", mirror=url)


def test_missing_on_the_server_names_the_nearest(server, refused):
    refused("PROTIENS", "HTTP 404", "did you mean PROTEINS", mirror=f"{server.url}/missing")


def test_login_page_instead_of_the_archive(server, refused):
    server.content = b"<!DOCTYPE html>please log in"
    refused("TINY", "is not a zip archive", "<!DOCTYPE", mirror=server.url)


def test_too_large_download(server, refused, monkeypatch):
    monkeypatch.setattr(fetch, "MOST_BYTES", 100)
    refused("TINY", "larger than 100 bytes", mirror=server.url)


def test_a_download_says_its_size_and_stops_at_a_limit(server, tmp_path, capfd):
    path, origin = fetch.fetch_archive("TINY", server.url, None, tmp_path)
    assert (path.read_bytes(), origin) == (server.content, f"{server.url}/TINY.zip")
    assert capfd.readouterr() == ("", f"graphcl: downloading {server.url}/TINY.zip (0.0 MB)\n")
    with pytest.raises(InputError, match=rf"TINY\.zip is larger than 100 bytes \({len(server.content)}\)\. Get TINY"):
        fetch.fetch_archive("TINY", server.url, None, tmp_path, most=100)


def test_connection_refused(refused, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setattr(TUDataset, "url", f"http://127.0.0.1:{port}")
    refused("PROTEINS", "refused", f"http://127.0.0.1:{port}/PROTEINS.zip", "--mirror FOLDER", "'synthetic'")


@pytest.mark.parametrize("url", ["http://", "http://[", "http://a b/", "http://127.0.0.1:port"])
def test_malformed_urls(url, refused):
    refused("TINY", "cannot download", mirror=url)


def test_file_url(mirror, root):
    assert len(load_dataset("TINY", root, mirror.as_uri())) == 3


def test_other_urls(refused):
    refused("TINY", "file:// or an http(s):// URL", "s3://bucket", mirror="s3://bucket")
    refused("TINY", "names another machine", mirror="file://host/folder")


def test_mirror_of_the_wrong_type(refused):
    refused("TINY", "`mirror` must be a folder or a URL, got int", mirror=3)


def test_mirror_does_not_exist(refused, tmp_path):
    refused("TINY", str(tmp_path / "none"), "does not exist", "TINY.zip", mirror=tmp_path / "none")


def test_mirror_is_the_archive(refused, mirror):
    refused("TINY", "is a file", "give the folder", mirror=mirror / "TINY.zip")


def test_mirror_lacks_the_file(refused, mirror, write_zip):
    write_zip(mirror, "PROTEINS")
    refused("PROTIENS", "no PROTIENS.zip", "did you mean PROTEINS?", "Archives there: PROTEINS, TINY", mirror=mirror)


@pytest.mark.parametrize(("name", "near"), [("PROTIENS", "PROTEINS"), ("mutag", "MUTAG"), ("Synthetic", "synthetic")])
def test_unknown_name_without_mirror(name, near, refused):
    refused(name, f"unknown data set {name!r}", near, "dataset_names()", f"{name}.zip", "--mirror FOLDER")


def test_folder_of_that_name(refused, tmp_path, monkeypatch):
    (tmp_path / "graphs").mkdir()
    monkeypatch.chdir(tmp_path)
    refused("graphs", "write './graphs'")


def test_names():
    names = dataset_names()
    assert names[0] == "synthetic"
    assert len(names) == len(set(names)) > 60
    assert {"PROTEINS", "REDDIT-MULTI-12K", "COLLAB", "DD", "PTC_FM"} <= set(names)
