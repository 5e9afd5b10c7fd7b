"""Downloads, from a server that the test starts on the loopback address and stops again."""

import hashlib
import http.server
import io
import re
import tarfile
import threading

import pytest

from fadas.errors import ConfigError
from fadas.tasks.downloads import Archive, data_folder
from helpers.cli import run_fadas


def make_archive(files):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


CONTENT = bytes(range(256)) * 4000
GOOD = make_archive({"set/one.bin": CONTENT})
EVIL = make_archive({"../escaped.bin": CONTENT})
MORE = make_archive({"../escaped.bin": CONTENT, "set/one.bin": CONTENT, "set/two.bin": CONTENT})


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves /good, /norange (which ignores ranges), /cut (which breaks off half-way), /evil and /more."""

    def do_GET(self):
        name = self.path.strip("/")
        body = {"evil": EVIL, "more": MORE}.get(name, GOOD)
        have = re.match(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(have.group(1)) if have and name != "norange" else 0
        self.server.requests.append((name, start))
        if start >= len(body):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        self.wfile.write(body[start : start + (len(body) - start) // 2] if name == "cut" else body[start:])

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setenv("FADAS_DATA", str(tmp_path / "data"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.requests = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    server.url = f"http://127.0.0.1:{server.server_port}"
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def archive(url, body=GOOD, md5=None):
    files = {"one.bin": hashlib.md5(CONTENT).hexdigest()}
    return Archive(url, md5 or hashlib.md5(body).hexdigest(), "set", files)


def test_fetch(server):
    seen = []
    wanted = archive(f"{server.url}/good")
    assert not wanted.complete()
    path = wanted.fetch(lambda done, total: seen.append((done, total)))
    assert (path / "one.bin").read_bytes() == CONTENT
    assert seen[-1] == (len(GOOD), len(GOOD))
    assert wanted.complete()
    assert not list(data_folder().glob("*.part"))


@pytest.mark.parametrize("then", ["good", "norange"])
def test_a_broken_download_is_continued(server, then):
    with pytest.raises(ConfigError, match=r"failed .*run the command again"):
        archive(f"{server.url}/cut").fetch(lambda done, total: None)
    half = len(GOOD) // 2
    assert (data_folder() / "cut.part").stat().st_size == half
    path = archive(f"{server.url}/cut").fetch(lambda done, total: None, url=f"{server.url}/{then}")
    assert (path / "one.bin").read_bytes() == CONTENT
    assert server.requests == [("cut", 0), (then, half if then == "good" else 0)]


def test_a_complete_part_is_not_fetched_again(server):
    data_folder().mkdir()
    (data_folder() / "good.part").write_bytes(GOOD)
    assert archive(f"{server.url}/good").fetch(lambda done, total: None).exists()


def test_a_wrong_archive_is_refused(server):
    with pytest.raises(ConfigError, match=r"has MD5 .* expected 0000"):
        archive(f"{server.url}/good", md5="0000").fetch(lambda done, total: None)
    assert not (data_folder() / "set").exists()
    assert not list(data_folder().glob("*.part")), "a wrong download must not be continued"


def test_an_archive_cannot_write_outside(server):
    with pytest.raises(ConfigError, match="cannot be unpacked"):
        archive(f"{server.url}/evil", EVIL).fetch(lambda done, total: None)
    archive(f"{server.url}/more", MORE).fetch(lambda done, total: None)
    assert [path.name for path in data_folder().parent.rglob("*.bin")] == ["one.bin"], "what is known, and nothing else"


def test_command(server, tmp_path):
    target = tmp_path / "elsewhere"
    wrong = run_fadas("data", "get", "cifar10", "--data-dir", target, "--url", f"{server.url}/good", code=2)
    assert "expected c32a1d4ab5d03f1284b67883e8d87530" in wrong.stderr
    assert "connection" in run_fadas("data", "get", "cifar100", "--url", "http://127.0.0.1:9/x", code=2).stderr.lower()
    assert "did you mean 'cifar10'" in run_fadas("data", "get", "cifar1", code=2).stderr


def test_command_finds_what_is_there(real_data):
    assert "there already" in run_fadas("data", "get", "cifar100", "--data-dir", real_data).stdout
