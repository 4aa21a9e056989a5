"""Test shared encoders: folders, and uploads to and downloads from a local stand-in of the Hugging Face hub."""

import base64
import hashlib
import http.server
import json
import threading

import numpy as np
import pytest

from graphcl import GraphCL, InputError, load_dataset
from graphcl.run import run
from graphcl.system.hub import FILES, HEADER

COMMIT = "0123456789abcdef0123456789abcdef01234567"
URL = f"https://huggingface.co/somebody/graphs/commit/{COMMIT}"


def digest(content):
    return hashlib.sha1(content).hexdigest()


class Hub(http.server.BaseHTTPRequestHandler):
    """The part of the hub's interface that uploads of small files and downloads use; files stay in memory."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/api/repos/create":
            sent = json.loads(body)
            self.reply({"url": f"https://huggingface.co/{sent.get('organization', 'somebody')}/{sent['name']}"})
        elif "/preupload/" in self.path:
            files = json.loads(body)["files"]
            plain = {"uploadMode": "regular", "shouldIgnore": False}
            self.reply({"files": [{"path": file["path"], **plain} for file in files]})
        elif "/commit/" in self.path:
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    self.server.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            self.reply(
                {
                    "commitUrl": f"https://huggingface.co/somebody/graphs/commit/{COMMIT}",
                    "commitOid": COMMIT,
                    "pullRequestUrl": None,
                }
            )
        else:
            self.reply({"errors": [], "warnings": []})

    def do_GET(self):
        name = self.path.rpartition("/")[2].partition("?")[0]
        content = self.server.files.get(name)
        if self.path.startswith("/api/models/somebody/graphs/tree/"):
            files = self.server.files.items()
            self.reply([{"type": "file", "path": path, "size": len(file), "oid": digest(file)} for path, file in files])
        elif self.path.startswith("/api/models/somebody/graphs"):
            names = [{"rfilename": file} for file in self.server.files]
            self.reply({"id": "somebody/graphs", "sha": COMMIT, "siblings": names})
        elif content is None or not self.path.startswith("/somebody/graphs/resolve/"):
            self.reply({"error": "Entry not found"}, 404, {"X-Error-Code": "EntryNotFound"})
        else:
            self.reply(content, 200, {"ETag": f'"{digest(content)}"'})

    def do_HEAD(self):
        self.do_GET()

    def reply(self, content, status=200, headers=None):
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        kind = "application/octet-stream" if isinstance(content, bytes) else "application/json"
        for key, value in {"Content-Type": kind, "X-Repo-Commit": COMMIT, **(headers or {})}.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def hub(monkeypatch, tmp_path):
    constants = pytest.importorskip("huggingface_hub.constants")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        server.files, url = {}, f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setattr(constants, "ENDPOINT", url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", url + "/{repo_id}/resolve/{revision}/{filename}")
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(scope="module")
def graphs():
    return load_dataset("synthetic")[::20]


@pytest.fixture(scope="module")
def fitted(graphs):
    return GraphCL(epochs=1, batch_size=16).fit(graphs)


def test_a_folder_gives_the_same_embeddings(fitted, graphs, tmp_path):
    fitted.save_pretrained(tmp_path / "m")
    assert {file.name for file in (tmp_path / "m").iterdir()} == set(FILES)
    loaded = GraphCL.from_pretrained(tmp_path / "m", device="cpu")
    assert np.array_equal(loaded.transform(graphs), fitted.transform(graphs))
    card = (tmp_path / "m" / "README.md").read_text()
    assert card.startswith(HEADER)
    assert 'GraphCL.from_pretrained("m")' in card
    assert "not scored" in card
    assert json.loads((tmp_path / "m" / "config.json").read_text())["out_channels"] == 96
    with pytest.raises(InputError, match=r"encoder\.pt"):
        fitted.save_pretrained(tmp_path / "m")


def test_the_card_of_a_run_goes_along(tmp_path):
    found = run(dataset="synthetic", epochs=0, eval="knn", seeds=[0], out=str(tmp_path / "run"), report=False)
    loaded = GraphCL.from_pretrained(found.folder)
    loaded.save_pretrained(tmp_path / "first")
    GraphCL.load(tmp_path / "first").save_pretrained(tmp_path / "second")
    first, second = ((tmp_path / name / "README.md").read_text() for name in ("first", "second"))
    assert "| graph statistics |" in first
    assert first.replace('"first"', '"second"') == second
    assert first.replace(HEADER, "").count("\n") == (found.folder / "card.md").read_text().count("\n")


def test_the_hub_gives_what_it_got(hub, fitted, graphs, tmp_path):
    assert fitted.push_to_hub("somebody/graphs", token="made up") == URL
    assert set(hub.files) == set(FILES)
    assert 'GraphCL.from_pretrained("somebody/graphs")' in hub.files["README.md"].decode()
    loaded = GraphCL.from_pretrained("somebody/graphs")
    assert np.array_equal(loaded.transform(graphs), fitted.transform(graphs))
    hub.files.clear()
    kept = GraphCL.from_pretrained("somebody/graphs", local_files_only=True)
    assert np.array_equal(kept.transform(graphs), fitted.transform(graphs))


def test_what_the_hub_lacks_is_refused_in_one_line(hub, fitted):
    for name in ("somebody/others", "./missing"):
        with pytest.raises(InputError, match="is not a folder, and the hub does not give it") as caught:
            GraphCL.from_pretrained(name)
        assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="cannot upload to"):
        fitted.push_to_hub("no such/name/at all")
