"""A server of archives on the loopback address."""

import contextlib
import hashlib
import http.server
import io
import re
import tarfile
import threading

from fadas.tasks.downloads import Archive


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
    """Serves /good, /norange (ignores ranges), /cut (breaks off half-way), /evil and /more."""

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


@contextlib.contextmanager
def serve_archives():
    """A running server. `requests` are the names that were asked for and where each download started."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.requests = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    server.url = f"http://127.0.0.1:{server.server_port}"
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def describe_archive(url, body=GOOD, md5=None) -> Archive:
    files = {"one.bin": hashlib.md5(CONTENT).hexdigest()}
    return Archive(url, md5 or hashlib.md5(body).hexdigest(), "set", files)
