"""Test mirrors, and downloads from a local server that answers correctly or fails in various ways."""

import contextlib
import gzip
import http.server
import socket
import threading
import time

import pytest
from torch_geometric.datasets import TUDataset

import graphcl.datasets.fetch as fetch
from graphcl.datasets import load_dataset
from graphcl.errors import InputError


class Handler(http.server.BaseHTTPRequestHandler):
    """HTTP handler: the first part of a request's path names the function in `BEHAVIOURS` that answers."""

    def do_GET(self):
        self.server.asked.append(self.path)
        BEHAVIOURS.get(self.path.split("/")[1], whole)(self, self.server.content)

    def answer(self, body, code=200, length=None, **headers):
        self.send_response(code)
        if length != "none":
            self.send_header("Content-Length", str(len(body) if length is None else length))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            self.wfile.write(body)

    def first(self):
        return len(self.server.asked) == 1

    def log_message(self, *_):
        pass


def whole(handler, content):
    handler.answer(content)


def silent(handler, content):
    time.sleep(1.5)


def stalls(handler, content):
    handler.answer(content[: 100 if handler.first() else None], length=len(content))
    if handler.first():
        handler.wfile.flush()
        time.sleep(1.0)


def garbled(handler, content):
    handler.wfile.write(b"\x00\x01 nothing like HTTP\r\n\r\n")


def half(handler, content):
    handler.answer(content[: len(content) // 2], length=len(content))


def breaks_off(handler, content):
    handler.answer(content[: 100 if handler.first() else None], length=len(content))


def too_short(handler, content):
    handler.answer(content, length=len(content) - 50)


def damaged_once(handler, content):
    handler.answer(content[:60] + b"?" + content[61:] if handler.first() else content)


def damaged(handler, content):
    handler.answer(content[:60] + b"?" + content[61:])


def endless(handler, content):
    with contextlib.suppress(ConnectionError):
        handler.answer(b"", length="none")
        while True:
            handler.wfile.write(bytes(2**16))


def chunks(handler, content):
    """Send an incomplete chunk by chunked transfer encoding, without a Content-Length."""
    handler.protocol_version = "HTTP/1.1"
    handler.answer(b"1000\r\nPK", length="none", Transfer_Encoding="chunked")
    handler.close_connection = True


def packed(handler, content):
    handler.answer(gzip.compress(content), Content_Encoding="gzip")


def to(place):
    return lambda handler, content: handler.answer(b"", 302, Location=place(handler))


BEHAVIOURS = {
    "silent": silent,
    "stalls": stalls,
    "missing": lambda handler, content: handler.send_error(404),
    "busy": lambda handler, content: handler.send_error(503, "\x1b[2Jbusy" + "y" * 5000),
    "garbled": garbled,
    "half": half,
    "breaks-off": breaks_off,
    "too-short": too_short,
    "damaged-once": damaged_once,
    "damaged": damaged,
    "endless": endless,
    "chunks": chunks,
    "packed": packed,
    "to-file": to(lambda handler: "file:///etc/passwd"),
    "to-ftp": to(lambda handler: "ftp://127.0.0.1/TINY.zip"),
    "to-data": to(lambda handler: "data:,PK"),
    "to-itself": to(lambda handler: handler.path),
    "to-sets": to(lambda handler: "/sets/TINY.zip"),
}


@pytest.fixture
def server(mirror, monkeypatch):
    monkeypatch.setattr(fetch, "PAUSE", 0)
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
        ("chunks", "broke off after"),
        ("packed", "has the encoding gzip, which was not requested"),
        ("to-file", "Redirection to url 'file:///etc/passwd' is not allowed"),
        ("to-ftp", "leads to ftp://127.0.0.1/TINY.zip, which is not followed"),
        ("to-data", "Redirection to url 'data:,PK' is not allowed"),
        ("to-itself", "infinite loop"),
        ("garbled", "cannot download"),
        ("silent", "timed out"),
    ],
)
def test_download_fails(behaviour, words, server, refused, monkeypatch):
    monkeypatch.setattr(fetch, "TIMEOUT", 0.3)
    url = f"{server.url}/{behaviour}"
    message = refused("TINY", f"{url}/TINY.zip", words, "--mirror FOLDER", "'synthetic'", mirror=url)
    assert message.isprintable()
    assert len(message) < 700
    assert len(server.asked) <= 12


@pytest.mark.parametrize("behaviour", ["breaks-off", "stalls", "damaged-once"])
def test_a_download_that_fails_once_is_repeated(behaviour, server, root, monkeypatch, capfd):
    monkeypatch.setattr(fetch, "TIMEOUT", 0.3)
    dataset = load_dataset("TINY", root, f"{server.url}/{behaviour}")
    assert [graph.num_nodes for graph in dataset] == [3, 2, 3]
    assert len(server.asked) == 2
    assert [path.name for path in root.iterdir()] == ["TINY"]
    told = capfd.readouterr().err.splitlines()
    assert all(line.startswith("graphcl: ") for line in told)
    assert len(told) == 3


def test_a_redirect_is_followed(server, root):
    assert len(load_dataset("TINY", root, f"{server.url}/to-sets")) == 3
    assert len(server.asked) == 2


def test_no_more_than_four_attempts(server, refused):
    size = len(server.content)
    refused("TINY", f"broke off after {size // 2} of", "4 times", mirror=f"{server.url}/half")
    assert len(server.asked) == fetch.ATTEMPTS == 4


@pytest.mark.parametrize("behaviour", ["damaged", "too-short"])
def test_an_archive_that_arrives_damaged_is_fetched_once_more(behaviour, server, refused, capfd):
    refused("TINY", "TINY.zip is damaged", mirror=f"{server.url}/{behaviour}")
    assert len(server.asked) == 2
    assert capfd.readouterr().err.count("Downloading it again") == 1


def test_a_damaged_archive_of_a_folder_is_not_fetched_again(mirror, refused, capfd):
    content = (mirror / "TINY.zip").read_bytes()
    (mirror / "TINY.zip").write_bytes(content[:-30])
    refused("TINY", "TINY.zip is damaged", mirror=mirror)
    assert capfd.readouterr().err == ""
    assert (mirror / "TINY.zip").read_bytes() == content[:-30]


def test_a_body_without_end(server, refused, monkeypatch):
    monkeypatch.setattr(fetch, "MAX_BYTES", 10**6)
    refused("TINY", "is larger than 1000000 bytes. Get TINY.zip elsewhere", mirror=f"{server.url}/endless")
    monkeypatch.setattr(fetch, "MAX_SECONDS", 0)
    refused("TINY", "takes longer than 0 hours. Get TINY.zip elsewhere", mirror=f"{server.url}/endless")


def test_from_https_nothing_leads_to_http():
    request = fetch.Request("https://a/TINY.zip")
    with pytest.raises(fetch.HTTPError, match="leads to http://b/, which is not followed"):
        fetch._Redirects().redirect_request(request, None, 302, "", {}, "http://b/")
    assert fetch._Redirects().redirect_request(request, None, 302, "", {}, "https://b/").full_url == "https://b/"


def test_a_download_says_its_size_and_stops_at_a_limit(server, tmp_path, capfd, monkeypatch):
    path, origin = fetch.fetch_archive("TINY", server.url, None, tmp_path)
    assert (path.read_bytes(), origin) == (server.content, f"{server.url}/TINY.zip")
    assert capfd.readouterr() == ("", f"graphcl: downloading {server.url}/TINY.zip (0.0 MB)\n")
    monkeypatch.setattr(fetch, "MAX_BYTES", 100)
    with pytest.raises(InputError, match=rf"TINY\.zip is larger than 100 bytes \({len(server.content)}\)\. Get TINY"):
        fetch.fetch_archive("TINY", server.url, None, tmp_path)


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
        ("TINY", "file://host/folder", ["names another machine"]),
        ("TINY", 3, ["`mirror` must be a folder or a URL, got int"]),
        ("TINY", "{mirror}/none", ["none", "does not exist", "TINY.zip"]),
        ("TINY", "{mirror}/TINY.zip", ["is a file", "give the folder"]),
        ("PROTIENS", "{mirror}", ["no PROTIENS.zip", "did you mean PROTEINS?", "Archives there: PROTEINS, TINY"]),
        ("PROTIENS", "{server}/missing", ["HTTP 404", "did you mean PROTEINS"]),
    ],
)
def test_mirrors_without_the_archive(name, place, words, refused, mirror, server, write_zip):
    write_zip(mirror, "PROTEINS")
    place = place.format(mirror=mirror, server=server.url) if isinstance(place, str) else place
    refused(name, *words, mirror=place)
