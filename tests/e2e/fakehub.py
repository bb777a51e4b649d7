"""A Hugging Face hub for tests: two HTTP servers in this process, the hub and the CDN that it redirects large files to.

Repositories are dicts of bytes; what goes wrong is set by attributes, and every request is recorded."""
import contextlib
import hashlib
import http.server
import json
import re
import ssl
import threading
import time
import urllib.parse


def git_sha1(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Repo:
    def __init__(self, files, lfs=(), gated=None, commit=None):
        self.files = files
        self.lfs = {n for n in files if n in lfs or n.endswith((".safetensors", ".gguf"))}
        self.gated = gated  # the token that may read it
        self.commit = commit or hashlib.sha1(repr(sorted((n, git_sha1(d)) for n, d in files.items())).encode()).hexdigest()
        self.revisions = {"main"}
        self.extra_names = []  # that the list of files has beside them

    def etag(self, name):
        return hashlib.sha256(self.files[name]).hexdigest() if name in self.lfs else git_sha1(self.files[name])


class Hub:
    def __init__(self, tls=None):
        """tls: (certificate, key) of the hub; the CDN is plain in any case."""
        self.repos = {}
        self.tls = tls
        self.log = []      # (server, method, path, headers)
        self.cut = {}      # file: [after how many bytes of each answer the connection ends, ...]
        self.fail = {}     # path's end: [status, ...] answered first
        self.headers = {}  # file: headers that replace those of its answers
        self.bytes = {}    # file: what is sent instead of its bytes
        self.ranges = True
        self.bytes_per_s = 0
        self.hold = {}     # file: an Event; bodies wait for it after their first half
        self.reached = {}  # file: an Event that is set when a body waits
        self.redirect_to = None  # file -> address
        self.lock = threading.Lock()
        self.servers = [self._start("hub"), self._start("cdn")]
        self.url = "%s://127.0.0.1:%d" % ("https" if tls else "http", self.servers[0].server_port)
        self.cdn = "http://127.0.0.1:%d" % self.servers[1].server_port

    def _start(self, name):
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            server_name = name

            def log_message(self, *args):
                pass

            def do_GET(self):
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    hub.answer(self, self.server_name)

            do_HEAD = do_GET

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request, address):
                pass
        server = Server(("127.0.0.1", 0), Handler)
        if self.tls and name == "hub":
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self.tls)
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return server

    def close(self):
        for e in self.hold.values():
            e.set()
        for s in self.servers:
            s.shutdown()
            s.server_close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # ---- what was asked ----

    def asked(self, method, end, server=None):
        return [r for r in self.log if r[1] == method and r[2].endswith(end) and server in (None, r[0])]

    # ---- answering ----

    def plain(self, h, status, body=b"", **headers):
        h.send_response(status)
        for k, v in headers.items():
            h.send_header(k.replace("_", "-"), v)
        h.send_header("Content-Length", str(len(body)))
        h.end_headers()
        if h.command != "HEAD":
            h.wfile.write(body)

    def answer(self, h, server):
        path = urllib.parse.unquote(h.path.split("?")[0])
        with self.lock:
            self.log.append((server, h.command, path, dict(h.headers)))
            for end, statuses in self.fail.items():
                if path.endswith(end) and statuses:
                    status = statuses.pop(0)
                    break
            else:
                status = 0
        if status:
            return self.plain(h, status, b"no", Retry_After="0")
        if server == "cdn":
            _, org, name, file = path.split("/", 3)
            return self.send_file(h, self.repos[org + "/" + name], file, {})
        m = re.fullmatch(r"/api/models/([^/]+/[^/]+)/revision/(.+)", path)
        if m:
            return self.send_info(h, m[1], m[2])
        m = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        return self.send_resolved(h, m[1], m[2], m[3]) if m else self.plain(h, 404)

    def open_repo(self, h, name, revision):
        repo = self.repos.get(name)
        if repo is None:
            return self.plain(h, 401, X_Error_Code="RepoNotFound", X_Error_Message="Repository not found")
        token = h.headers.get("Authorization", "").removeprefix("Bearer ")
        if repo.gated and token != repo.gated:
            return self.plain(h, 403 if token else 401, X_Error_Code="GatedRepo", X_Error_Message="Access to model %s is restricted" % name)
        if revision not in repo.revisions and revision != repo.commit:
            return self.plain(h, 404, X_Error_Code="RevisionNotFound", X_Error_Message="Invalid rev id: " + revision)
        return repo

    def send_info(self, h, name, revision):
        repo = self.open_repo(h, name, revision)
        if repo:
            files = [{"rfilename": n} for n in [*repo.files, *repo.extra_names]]
            self.plain(h, 200, json.dumps({"id": name, "sha": repo.commit, "siblings": files, "gated": False}).encode())

    def send_resolved(self, h, name, revision, file):
        repo = self.open_repo(h, name, revision)
        if not repo:
            return None
        if file not in repo.files:
            return self.plain(h, 404, X_Error_Code="EntryNotFound", X_Error_Message="Entry not found")
        if file not in repo.lfs:
            return self.send_file(h, repo, file, {"X-Repo-Commit": repo.commit})
        to = self.redirect_to(file) if self.redirect_to else "%s/%s/%s" % (self.cdn, name, urllib.parse.quote(file))
        headers = {"X-Repo-Commit": repo.commit, "X-Linked-Etag": '"%s"' % repo.etag(file), "X-Linked-Size": str(len(repo.files[file])), "Location": to}
        headers.update(self.headers.get(file, {}))
        return self.plain(h, 302, b"moved", **{k.replace("-", "_"): v for k, v in headers.items()})

    def send_file(self, h, repo, file, headers):
        data = self.bytes.get(file, repo.files[file])
        whole = len(data)
        m = re.fullmatch(r"bytes=(\d+)-", h.headers.get("Range", ""))
        start = int(m[1]) if m and self.ranges and h.command == "GET" else 0
        if m and start and start >= whole:
            return self.plain(h, 416)
        data = data[start:]
        h.send_response(206 if start else 200)
        own = {"ETag": '"%s"' % repo.etag(file), "Content-Length": str(len(data)), "Accept-Ranges": "bytes", **headers, **self.headers.get(file, {})}
        if start:
            own["Content-Range"] = "bytes %d-%d/%d" % (start, whole - 1, whole)
        for k, v in own.items():
            h.send_header(k, v)
        h.end_headers()
        if h.command != "HEAD":
            self.send_body(h, file, data)

    def send_body(self, h, file, data):
        with self.lock:
            cut = self.cut.get(file)
            n = cut.pop(0) if cut else None
        if n is not None:
            data, h.close_connection = data[:n], True
        if file in self.hold:
            h.wfile.write(data[:len(data) // 2])
            h.wfile.flush()
            data = data[len(data) // 2:]
            self.reached.setdefault(file, threading.Event()).set()
            self.hold[file].wait(60)
        if not self.bytes_per_s:
            h.wfile.write(data)
        step = max(1, self.bytes_per_s // 20)
        for at in range(0, len(data) if self.bytes_per_s else 0, step):
            h.wfile.write(data[at:at + step])
            h.wfile.flush()
            time.sleep(0.05)
        if n is not None:
            h.connection.shutdown(2)
