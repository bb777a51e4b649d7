"""A real `sluice serve` for tests, and the question whether anything of it is left.

Every process of a server carries E2E_SERVER_ID in its environment, so all of them are found, also when their parent is gone."""
import fcntl
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid

import wire

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.path.abspath(os.path.join(ROOT, os.environ.get("SLUICE_BIN_DIR") or "build/bin"))
SLUICE = os.path.join(BIN, "sluice")
IS_SAN = "/san" in BIN or "/tsan" in BIN
SLOW = 5 if IS_SAN else 1  # sanitizers multiply time
REAL_MODEL = os.path.join(ROOT, "models", "SmolLM2-135M-Instruct.Q4_1.gguf")
# Loopback ports of tests lie outside the range that connections draw theirs from: what free_port() found stays free.
PORTS = iter(range(20000 + os.getpid() * 7 % 9000, 32000))
SAN_SPOKE = re.compile(r"ERROR: \w*Sanitizer|WARNING: ThreadSanitizer|runtime error:|LeakSanitizer")


def free_port(family=socket.AF_INET):
    for port in PORTS:
        with socket.socket(family) as s:
            try:
                s.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no free port")


def wait_for(what, check, seconds=20, pause=0.01):
    """The first true value of check(); fails with `what` after `seconds`."""
    until = time.monotonic() + seconds * SLOW
    while True:
        value = check()
        if value:
            return value
        if time.monotonic() > until:
            raise AssertionError("after %.0f s still not: %s" % (seconds * SLOW, what))
        time.sleep(pause)


def is_alive(pid):
    """Zombies of others are not alive."""
    try:
        with open("/proc/%d/stat" % pid) as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (OSError, IndexError):
        return False


def read_proc(pid, name):
    try:
        with open("/proc/%d/%s" % (pid, name), "rb") as f:
            return f.read()
    except OSError:
        return b""


def settled_fds(pids):
    """fd_count() of each, once it stays: a process may still be connecting to the others."""
    seen, since = None, 0.0
    until = time.monotonic() + 20 * SLOW
    while time.monotonic() < until:
        now = [fd_count(p) for p in pids]
        if now != seen:
            seen, since = now, time.monotonic()
        elif time.monotonic() - since > 0.3:
            return now
        time.sleep(0.02)
    raise AssertionError("descriptors do not settle: %s" % seen)


def fd_count(pid):
    try:
        return len(os.listdir("/proc/%d/fd" % pid))
    except OSError:
        return -1


def rss_mib(pid):
    m = re.search(rb"VmRSS:\s+(\d+)", read_proc(pid, "status"))
    return int(m.group(1)) / 1024 if m else 0.0


class Server:
    """Starts at once; use .ready() to wait. As a context manager it ends with stop(), which checks that nothing is left."""

    def __init__(self, model, *flags, frontends=1, name="tiny", port=None, host="127.0.0.1", env=None, wrap=(), stop_signal=signal.SIGTERM, log_name="", key=None, tls=None):
        """host: an address, or the path of a UNIX socket. key: the API key that clients send; tls: their ssl.SSLContext."""
        self.tag = uuid.uuid4().hex
        self.is_unix = host.startswith("/")
        self.port = free_port(socket.AF_INET6 if ":" in host else socket.AF_INET) if port is None else port
        self.host = host
        self.key = key
        self.tls = tls
        self.name = name
        self.tmp = tempfile.mkdtemp(prefix="sl-", dir="/tmp")
        self.frontends = frontends
        self.stop_signal = stop_signal
        self.shm_before = self._shm()
        self.log = tempfile.TemporaryFile()
        fcntl.fcntl(self.log, fcntl.F_SETFL, os.O_APPEND)  # it is read while it is written: text() moves the offset that all share
        self.code = None
        self.n_scrapes = 0
        argv = [*wrap, SLUICE, "serve", model, *(["--uds", host] if self.is_unix else ["--port", str(self.port), "--host", host]), *(["--served-model-name", name] if name else []), "--num-frontends", str(frontends), *flags]
        full = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_") and k not in ("XDG_RUNTIME_DIR", "NOTIFY_SOCKET")}
        full.update({"TMPDIR": self.tmp, "E2E_SERVER_ID": self.tag, "PYTHONDONTWRITEBYTECODE": "1"})
        if IS_SAN:
            full["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "detect_leaks=1:disable_coredump=1")
            full["UBSAN_OPTIONS"] = "print_stacktrace=1"
        full.update(env or {})
        self.begin = time.monotonic()
        self.p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT, env=full, start_new_session=True)

    # ---- asking ----

    @property
    def url(self):
        return "%s://%s:%d" % ("https" if self.tls else "http", "[%s]" % self.host if ":" in self.host else self.host, self.port)

    @property
    def credentials(self):
        return {"tls": self.tls, "headers": ["Authorization: Bearer " + self.key] if self.key else []}

    def conn(self, **kw):
        return wire.Conn(self.host, self.port, **{**self.credentials, **kw})

    def get(self, path, **kw):
        return self.ask("GET", path, **kw)

    def post(self, path, body, **kw):
        return self.ask("POST", path, body, **kw)

    def ask(self, method, path, body=None, timeout=60, headers=()):
        with self.conn(timeout=timeout * SLOW) as c:
            return c.ask(method, path, body, headers)

    def complete(self, prompt="the inn", path="/v1/completions", **kw):
        """A request that must go well; the answer's JSON."""
        body = {"model": self.name, "max_tokens": 8, "temperature": 0}
        if path.endswith("chat/completions"):
            body["messages"] = prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}]
        else:
            body["prompt"] = prompt
        r = self.post(path, {**body, **kw})
        assert r.status == 200, r
        return r.json()

    def chat(self, prompt="hello", **kw):
        return self.complete(prompt, "/v1/chat/completions", **kw)

    def stream(self, prompt="the inn", path="/v1/completions", timeout=120, **kw):
        """An open stream; iterate over it for events."""
        body = {"model": self.name, "max_tokens": 8, "temperature": 0, "stream": True, "prompt": prompt}
        if path.endswith("chat/completions"):
            body["messages"] = body.pop("prompt")
        return wire.Stream(self.host, self.port, path, {**body, **kw}, timeout * SLOW, **self.credentials)

    def metrics(self):
        """{name{labels}: value} as text keys, and by bare name where there is one line only."""
        r = self.get("/metrics")
        assert r.status == 200, r
        self.n_scrapes += 1
        out = {}
        for line in r.text().splitlines():
            if line and not line.startswith("#"):
                key, value = line.rsplit(" ", 1)
                out[key] = float(value)
        return out

    def metric(self, name, **labels):
        """Sum of the lines of that name with those labels."""
        found = [v for k, v in self.metrics().items()
                 if k.split("{")[0] == name and all('%s="%s"' % (a, b) in k for a, b in labels.items())]
        assert found, "no metric %s %s" % (name, labels)
        return sum(found)

    def blocks(self):
        m = self.metrics()
        return {s: next(v for k, v in m.items() if k.startswith("sluice:kv_blocks{") and 'state="%s"' % s in k) for s in ("total", "used", "cached", "free")}

    def wait_idle(self, seconds=20):
        """Nothing runs, nothing waits, no block is in use, and none is lost."""
        def idle():
            m = self.metrics()
            pick = lambda name: sum(v for k, v in m.items() if k.split("{")[0] == name)
            b = {s: next(v for k, v in m.items() if k.startswith("sluice:kv_blocks{") and 'state="%s"' % s in k) for s in ("total", "used", "cached", "free")}
            last[:] = [pick("vllm:num_requests_running"), pick("vllm:num_requests_waiting"), pick("sluice:live_requests"), b]
            return last[:3] == [0, 0, 0] and b["used"] == 0 and b["free"] + b["cached"] == b["total"]
        last = []
        try:
            wait_for("idle", idle, seconds)
        except AssertionError as e:
            raise AssertionError("%s; running, waiting, live, blocks: %s" % (e, last)) from None

    # ---- its processes ----

    def pids(self):
        """{pid: name} of all that live."""
        needle = b"E2E_SERVER_ID=" + self.tag.encode()
        out = {}
        for d in os.listdir("/proc"):
            if d.isdigit() and needle in read_proc(int(d), "environ").split(b"\0") and is_alive(int(d)):
                out[int(d)] = read_proc(int(d), "comm").decode().strip()
        return out

    def kids(self, kind):
        """Pids of a kind: frontend, executor, worker; in the order of their start."""
        out = []
        for pid in self.pids():
            argv0 = read_proc(pid, "cmdline").split(b"\0")[0].decode()
            if os.path.basename(argv0).startswith("sluice-" + kind):
                out.append(pid)
        return sorted(out)

    def kill(self, kind, sig=signal.SIGKILL, n=0):
        pid = self.kids(kind)[n]
        os.kill(pid, sig)
        return pid

    # ---- beginning and end ----

    def ready(self, seconds=60):
        def check():
            if self.p.poll() is not None:
                raise AssertionError("the server ended with %d:\n%s" % (self.p.returncode, self.text()))
            try:
                return self.ask("GET", "/ready", timeout=5).status == 200
            except OSError:
                return False
        try:
            wait_for("ready", check, seconds, 0.02)
            # More than one frontend: the one that answered is up, its siblings may still load.
            wait_for("all up", lambda: all(v == 1 for k, v in self.metrics().items() if k.startswith("sluice:process_up")), seconds, 0.02)
        except AssertionError as e:
            self.kill_all()
            raise AssertionError("%s\n%s" % (e, self.text())) from None
        return self

    def wait(self, seconds=20):
        """The exit code."""
        try:
            self.code = self.p.wait(seconds * SLOW)
        except subprocess.TimeoutExpired:
            text = self.text()
            self.kill_all()
            raise AssertionError("still running after %.0f s:\n%s" % (seconds * SLOW, text)) from None
        return self.code

    def text(self):
        self.log.flush()
        self.log.seek(0)
        return self.log.read().decode("utf-8", "replace")

    def lines(self, *words):
        return [l for l in self.text().splitlines() if all(w in l for w in words)]

    @staticmethod
    def _shm():
        try:
            return set(os.listdir("/dev/shm"))
        except OSError:
            return set()

    def expect_nothing_left(self, seconds=1.0):
        """All processes gone within that time, no file, no shared memory, nobody listens."""
        left = []
        until = time.monotonic() + seconds * SLOW
        while True:
            left = self.pids()
            if not left or time.monotonic() > until:
                break
            time.sleep(0.01)
        assert not left, "processes are left: %s\n%s" % (left, self.text())
        files = [os.path.join(d, f) for d, subs, names in os.walk(self.tmp) for f in subs + names]
        assert not files, "files are left: %s" % files
        shm = {f for f in self._shm() - self.shm_before if "sluice" in f}
        assert not shm, "shared memory is left: %s" % shm
        # A process that ends loses its memory, by which it is found, a moment before its sockets.
        while self.listens() and time.monotonic() < until:
            time.sleep(0.01)
        assert not self.listens(), "somebody still listens"

    def listens(self):
        with socket.socket(socket.AF_UNIX if self.is_unix else socket.AF_INET6 if ":" in self.host else socket.AF_INET) as s:
            return s.connect_ex(self.host if self.is_unix else (self.host, self.port)) == 0

    def expect_quiet_log(self):
        m = SAN_SPOKE.search(self.text())
        assert not m, self.text()

    def stop(self, code=0, seconds=20):
        """Ends it and checks that it is gone without a trace."""
        try:
            if self.p.poll() is None:
                self.p.send_signal(self.stop_signal)
            got = self.wait(seconds)
            assert got == code, "exit code %d instead of %d:\n%s" % (got, code, self.text())
            self.expect_nothing_left()
            self.expect_quiet_log()
        finally:
            self.release()

    def kill_all(self):
        for pid in self.pids():
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        if self.p.poll() is None:
            self.p.kill()
        self.p.wait()

    def release(self):
        self.kill_all()
        shutil.rmtree(self.tmp, ignore_errors=True)
        self.log.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, *rest):
        if kind is not None:  # the test has failed already: show what the server said, do not ask for more
            print("---- log of the server\n" + "\n".join(self.text().splitlines()[-80:]))
            self.release()
        elif not self.log.closed:
            self.stop()


def is_json(text):
    try:
        json.loads(text)
        return True
    except ValueError:
        return False
