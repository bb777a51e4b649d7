"""nginx and HAProxy in front, with what they do when nobody sets anything: streams arrive as they are made, clients that leave are noticed, connections are kept, health checks tell the truth.

Each proxy is a process of the test, from a folder of the test, on a port of the test."""
import copy
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time

import httpx
import openai
import pytest

import server as sv
import wire

TEXT = "/v1/completions"
CHAT = "/v1/chat/completions"
# Debian keeps them where users' paths do not look.
PATH = os.environ.get("PATH", "") + ":/usr/sbin"
NGINX, HAPROXY = (shutil.which(p, path=PATH) for p in ("nginx", "haproxy"))


class Proxy:
    """A running proxy, and the server as it looks through it (`via`)."""

    def __init__(self, argv, port, server, log):
        self.port, self.log = port, log
        self.p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=open(log, "ab"), stderr=subprocess.STDOUT, start_new_session=True)
        self.via = copy.copy(server)
        self.via.host, self.via.port, self.via.is_unix, self.via.tls = "127.0.0.1", port, False, None
        try:
            sv.wait_for("the proxy listens", self.listens)
        except AssertionError as e:
            self.stop()
            raise AssertionError("%s\n%s" % (e, self.text())) from None

    def listens(self):
        assert self.p.poll() is None, self.text()
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", self.port)) == 0

    def text(self):
        with open(self.log) as f:
            return f.read()

    def stop(self):
        if self.p.poll() is None:
            self.p.terminate()  # fast, with all its workers
            try:
                self.p.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(self.p.pid, signal.SIGKILL)
                self.p.wait()


def where(s):
    return s.host if s.is_unix else "%s:%d" % (s.host, s.port)


@pytest.fixture
def nginx(tmp_path):
    """nginx(server, ...): an nginx whose settings are its defaults but for what is given."""
    if not NGINX:
        pytest.skip("no nginx (nginx-light)")
    made = []

    def make(*servers, location="", upstream="", server="", path="/", target="http://up", raw_upstream=None):
        folder = tmp_path / ("nginx%d" % len(made))
        folder.mkdir()
        port = sv.free_port()
        temps = "".join("  %s_temp_path %s/%s;\n" % (k, folder, k) for k in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        ups = raw_upstream or "".join("server %s%s; " % ("unix:" if s.is_unix else "", where(s)) for s in servers)
        (folder / "nginx.conf").write_text(
            "%sdaemon off; worker_processes 1; pid %s/pid; error_log %s/log;\nevents {}\nhttp {\n  access_log off;\n%s  upstream up { %s%s }\n"
            "  server { listen 127.0.0.1:%d; %s location %s { proxy_pass %s; %s } }\n}\n" %
            ("user root; " if os.geteuid() == 0 else "", folder, folder, temps, ups, upstream, port, server, path, target, location))
        made.append(Proxy([NGINX, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", str(folder / "log")], port, servers[0], str(folder / "log")))
        return made[-1]
    yield make
    for p in made:
        p.stop()


@pytest.fixture
def haproxy(tmp_path):
    """haproxy(server, ...): likewise. .states(): {server: UP, DOWN, ...}"""
    if not HAPROXY:
        pytest.skip("no haproxy")
    made = []

    def make(*servers, backend="", options=""):
        folder = tmp_path / ("haproxy%d" % len(made))
        folder.mkdir()
        port = sv.free_port()
        lines = "".join("  server s%d %s%s %s\n" % (i, "unix@" if s.is_unix else "", where(s), options) for i, s in enumerate(servers))
        (folder / "cfg").write_text(
            "global\n  stats socket %s/sock\ndefaults\n  mode http\n  timeout connect 5s\n  timeout check 5s\n  timeout client 120s\n  timeout server 120s\n"
            "frontend f\n  bind 127.0.0.1:%d\n  default_backend b\nbackend b\n%s%s" % (folder, port, backend, lines))
        p = Proxy([HAPROXY, "-db", "-f", str(folder / "cfg")], port, servers[0], str(folder / "log"))
        sv.wait_for("its socket", (folder / "sock").exists)

        def states():
            with socket.socket(socket.AF_UNIX) as s:
                s.connect(str(folder / "sock"))
                s.sendall(b"show stat\n")
                text = b"".join(iter(lambda: s.recv(65536), b"")).decode()
            rows = [line.split(",") for line in text.splitlines() if line and not line.startswith("#")]
            return {r[1]: r[17] for r in rows if r[0] == "b" and r[1].startswith("s")}
        p.states = states
        made.append(p)
        return p
    yield make
    for p in made:
        p.stop()


@pytest.fixture(params=["nginx", "haproxy"])
def proxy(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    """The programs, but the worker begins only when the file `go` is there."""
    folder = tmp_path_factory.mktemp("slow")
    for name in os.listdir(sv.BIN):
        if name.startswith("sluice") and name != "sluice-worker-cpu":
            os.symlink(os.path.join(sv.BIN, name), folder / name)
    worker = folder / "sluice-worker-cpu"
    worker.write_text("#!/bin/sh\nwhile [ ! -e %s/go ]; do sleep 0.05; done\nexec %s/sluice-worker-cpu\n" % (folder, sv.BIN))
    worker.chmod(0o755)
    return folder


def running(s):
    return s.metric("vllm:num_requests_running") + s.metric("vllm:num_requests_waiting")


# ---- the same through it ----

def test_answers_are_the_same(server, proxy):
    via = proxy(server).via
    assert via.complete("abc")["choices"] == server.complete("abc")["choices"]
    assert via.stream("abc", max_tokens=40, ignore_eos=True).finish() == server.stream("abc", max_tokens=40, ignore_eos=True).finish()
    for path in ("/health", "/v1/models", "/metrics", "/nosuch"):
        assert via.get(path).status == server.get(path).status
    assert via.post(TEXT, b"{").error()["code"] == 400
    r = via.ask("OPTIONS", CHAT, headers=["Origin: http://a.example", "Access-Control-Request-Method: POST"])
    assert r.status == 204 and r.headers["access-control-allow-origin"] == "*"
    assert via.get("/live", headers=["X-Request-Id: mine"]).headers["x-request-id"] == "mine"
    with via.conn() as c:
        assert c.ask("HEAD", "/health").status == 200 and c.ask("GET", "/live").status == 200


def test_openai_client(server, proxy):
    client = openai.OpenAI(base_url=proxy(server).via.url + "/v1", api_key="x", max_retries=0)
    want = client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "hello"}], max_tokens=30, temperature=0)
    stream = client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "hello"}], max_tokens=30, temperature=0, stream=True)
    assert "".join(e.choices[0].delta.content or "" for e in stream if e.choices) == want.choices[0].message.content
    with pytest.raises(openai.BadRequestError):
        client.completions.create(model="tiny", prompt="x", temperature=-1)


def test_large_and_chunked_bodies(server, proxy):
    """nginx sends a chunked body on with its length, HAProxy as it came."""
    via = proxy(server).via
    data = json.dumps({"model": "tiny", "prompt": "x", "max_tokens": 2, "temperature": 0, "user": "u" * 900000}).encode()
    want = via.post(TEXT, data).json()["choices"]
    with via.conn() as c:
        c.send(wire.request("POST", TEXT, headers=["Transfer-Encoding: chunked"]))
        for i in range(0, len(data), 100001):
            piece = data[i:i + 100001]
            c.send(b"%x;x=y\r\n%s\r\n" % (len(piece), piece))
        c.send(b"0\r\n\r\n")
        assert c.answer().json()["choices"] == want


def test_a_stream_arrives_while_it_is_made(server, proxy):
    via = proxy(server).via
    st = via.stream(max_tokens=3500, ignore_eos=True)
    assert st.next() and running(server) == 1
    assert st.finish()[2] == "length"


def arrivals(via):
    """How many of a short answer's events came by themselves, a moment after the one before: 0 when all of it was buffered."""
    st = via.stream("Once upon a time", max_tokens=12, ignore_eos=True)
    times = [time.monotonic() for _ in st]
    assert len(times) > 1  # two tokens may share an event where the machine was busy
    return sum(later - sooner > 0.001 for sooner, later in zip(times, times[1:]))


@pytest.mark.real
def test_each_event_arrives_when_it_is_made(real, nginx, haproxy):
    """Also of an answer that is smaller than a proxy's buffers. proxy_buffering is on by default, so the answer itself tells nginx; the last
    proxy is one that does not listen to it, to see that this would be seen. HAProxy lets the kernel collect small chunks for up to 200 ms
    unless it is told not to. Several tries each: the machine may be busy with other things."""
    for name, p in (("nginx", nginx(real)), ("haproxy", haproxy(real, backend="  option http-no-delay\n"))):
        seen = [arrivals(p.via) for _ in range(6)]
        assert max(seen) >= 6, (name, seen)
    deaf = nginx(real, location="proxy_ignore_headers X-Accel-Buffering;").via
    seen = [arrivals(deaf) for _ in range(6)]
    assert min(seen) <= 2, seen


def test_a_client_that_leaves_a_stream_is_noticed(server, proxy):
    p = proxy(server)
    streams = [p.via.stream("n %d" % i, max_tokens=4000, ignore_eos=True) for i in range(4)]
    for st in streams:
        assert st.next()
    assert running(server) == 4
    for i, st in enumerate(streams):
        st.close(reset=i % 2 == 0)
    sv.wait_for("none runs", lambda: running(server) == 0, 5)


@pytest.mark.parametrize("kind", ["nginx", "haproxy"])
def test_a_client_that_leaves_a_plain_request_is_noticed(server, kind, request):
    """nginx does so by default. HAProxy waits for the answer, unless it is told that nobody will read it."""
    make = request.getfixturevalue(kind)
    via = (make(server, backend="  option abortonclose\n") if kind == "haproxy" else make(server)).via
    held = [via.conn() for _ in range(3)]
    for c in held:
        c.send(wire.request("POST", TEXT, {"model": "tiny", "prompt": "x", "max_tokens": 4000, "ignore_eos": True}))
    sv.wait_for("three run", lambda: running(server) == 3)
    for c in held:
        c.close()
    sv.wait_for("none runs", lambda: running(server) == 0, 5)


def test_many_connections(server, proxy):
    via = proxy(server).via
    want = {i: server.complete("n %d" % i, max_tokens=6, ignore_eos=True)["choices"][0]["text"] for i in range(4)}
    out = []

    def one(i):
        with via.conn() as c:
            for k in range(3):
                r = c.ask("POST", TEXT, {"model": "tiny", "prompt": "n %d" % (i % 4), "max_tokens": 6, "ignore_eos": True, "temperature": 0})
                out.append(r.status == 200 and r.json()["choices"][0]["text"] == want[i % 4])
    threads = [threading.Thread(target=one, args=(i,)) for i in range(60)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(out) == 180 and all(out)


# ---- connections that are kept ----

KEEP = {"location": 'proxy_http_version 1.1; proxy_set_header Connection "";', "upstream": "keepalive 8;"}


def test_nginx_keeps_connections(server, nginx):
    p = nginx(server, **KEEP)
    before = server.metric("sluice:connections_accepted_total")
    for i in range(30):
        assert p.via.complete("n %d" % i, max_tokens=2)["choices"]
    st = p.via.stream(max_tokens=20, ignore_eos=True)
    assert st.finish()[2] == "length"
    for body in (b"{", b""):
        assert p.via.post(TEXT, body).status == 400, "an error costs no connection either"
    assert server.metric("sluice:connections_accepted_total") - before < 12
    assert "upstream" not in p.text(), p.text()


def test_haproxy_keeps_connections(server, haproxy):
    p = haproxy(server)
    with p.via.conn() as c:
        before = server.metric("sluice:connections_accepted_total")
        for i in range(30):
            assert c.ask("POST", TEXT, {"model": "tiny", "prompt": "n %d" % i, "max_tokens": 2}).status == 200
        assert server.metric("sluice:connections_accepted_total") - before <= 3


def test_a_kept_connection_that_we_close_is_no_error(start, tiny, proxy, request):
    """Our keep-alive ends while the proxy holds the connection: the next request gets a new one."""
    s = start(tiny, "--timeout-keep-alive", "1").ready()
    p = proxy(s, **KEEP) if "nginx" in request.node.name else proxy(s)
    with p.via.conn() as c:
        for i in range(4):
            assert c.ask("POST", TEXT, {"model": "tiny", "prompt": "x", "max_tokens": 2}).status == 200
            time.sleep(1.2 if i % 2 else 0.9)  # around the moment at which it closes
    assert "prematurely" not in p.text(), p.text()


def test_a_frontend_that_dies_is_no_error_for_the_next(start, tiny, nginx):
    s = start(tiny, frontends=2).ready()
    p = nginx(s, **KEEP)
    assert p.via.complete()["choices"]
    s.kill("frontend")
    statuses = [p.via.get("/v1/models").status for _ in range(20)]
    assert statuses.count(200) >= 18, statuses
    s.ready()


# ---- health checks and other servers ----

CHECKS = ["option httpchk", "option httpchk GET /health", "option httpchk HEAD /ready", "option httpchk OPTIONS *",
          "option httpchk\n  http-check send meth GET uri /health ver HTTP/1.1 hdr Host any"]


@pytest.mark.parametrize("check", CHECKS)
def test_haproxy_health_checks(server, haproxy, check):
    p = haproxy(server, backend="  %s\n" % check, options="check inter 100ms")
    sv.wait_for("it is up", lambda: p.states() == {"s0": "UP"})
    assert p.via.complete()["choices"]
    time.sleep(0.5)  # five more checks
    assert p.states() == {"s0": "UP"}, p.text()


def test_haproxy_waits_while_it_loads(start, tiny, haproxy, slow):
    """Down while it loads, up when it serves, down when it drains; nobody gets an error from it."""
    (slow / "go").unlink(missing_ok=True)
    ready = start(tiny).ready()
    loading = start(tiny, env={"SLUICE_BIN_DIR": str(slow)})
    sv.wait_for("it says that it loads", lambda: health(loading) == 503)
    p = haproxy(ready, loading, backend="  balance roundrobin\n  option httpchk GET /health\n", options="check inter 100ms")
    sv.wait_for("one is up", lambda: p.states() == {"s0": "UP", "s1": "DOWN"})
    for i in range(10):
        assert p.via.complete("n %d" % i, max_tokens=2)["choices"]
    (slow / "go").touch()
    sv.wait_for("both are up", lambda: p.states() == {"s0": "UP", "s1": "UP"})
    sv.wait_for("both are asked", lambda: p.via.complete(max_tokens=2) and loading.metric("vllm:prompt_tokens_total") > 0)
    held = ready.stream(max_tokens=3000, ignore_eos=True)
    assert held.next()
    ready.p.send_signal(signal.SIGTERM)
    sv.wait_for("one is down again", lambda: p.states()["s0"].startswith("DOWN"))
    for i in range(6):
        assert p.via.complete("n %d" % i, max_tokens=2)["choices"]
    assert held.finish()[2] == "length", "what it had begun is finished"


def health(s):
    try:
        return s.get("/health").status
    except OSError:
        return 0


def test_503_goes_to_the_next_server(start, tiny, nginx, haproxy, slow):
    """While one loads, it says 503 before it has done anything: a proxy may ask another."""
    (slow / "go").unlink(missing_ok=True)
    ready, loading = start(tiny).ready(), start(tiny, env={"SLUICE_BIN_DIR": str(slow)})
    sv.wait_for("it says that it loads", lambda: health(loading) == 503)
    assert loading.post(TEXT, {"model": "tiny", "prompt": "x"}).headers["retry-after"]
    for p in (nginx(loading, ready, location="proxy_next_upstream error timeout http_503 non_idempotent;"),
              haproxy(loading, ready, backend="  balance roundrobin\n  retry-on 503\n  option redispatch 1\n")):
        p.via.key = None
        for i in range(8):
            assert p.via.complete("n %d" % i, max_tokens=2)["choices"], p.text()
    (slow / "go").touch()
    loading.ready()


# ---- other ways to the server ----

def test_unix_socket(start, tiny, proxy, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("u") / "s")
    s = start(tiny, frontends=2, host=path).ready()
    p = proxy(s)
    assert p.via.complete()["choices"] and p.via.stream(max_tokens=30, ignore_eos=True).finish()[2] == "length"
    st = p.via.stream(max_tokens=4000, ignore_eos=True)
    assert st.next()
    st.close()
    sv.wait_for("none runs", lambda: running(s) == 0, 5)


def test_https(start, tiny, nginx, haproxy, tmp_path):
    import ssl
    import test_tls
    crt, key = test_tls.make_cert(tmp_path, "inner")
    s = start(tiny, "--ssl-certfile", crt, "--ssl-keyfile", key, tls=ssl.create_default_context(cafile=crt)).ready()
    for p in (nginx(s, target="https://up", location="proxy_ssl_trusted_certificate %s; proxy_ssl_verify on; proxy_ssl_name localhost;" % crt),
              haproxy(s, options="ssl verify required ca-file %s verifyhost localhost check inter 200ms" % crt)):
        assert p.via.complete()["choices"], p.text()
        assert p.via.stream(max_tokens=30, ignore_eos=True).finish()[2] == "length"


def test_prefixes(start, tiny, nginx):
    """One proxy that leaves its prefix, one that takes it away."""
    s = start(tiny, "--root-path", "/llm").ready()
    leaves, takes = nginx(s, path="/llm/"), nginx(s, path="/llm/", target="http://up/")
    for p in (leaves, takes):
        client = openai.OpenAI(base_url=p.via.url + "/llm/v1", api_key="x", max_retries=0)
        assert client.models.list().data[0].id == "tiny"
        assert client.completions.create(model="tiny", prompt="x", max_tokens=2).choices
        assert httpx.get(p.via.url + "/llm/openapi.json").json()["servers"] == [{"url": "/llm"}]


def test_keys_pass_through(start, tiny, proxy):
    s = start(tiny, "--api-key", "k", key="k").ready()
    p = proxy(s)
    assert p.via.complete()["choices"]
    with p.via.conn(headers=[]) as c:
        r = c.ask("POST", TEXT, {"model": "tiny", "prompt": "x" * 500000})
        assert r.status == 401 and r.headers["www-authenticate"] == "Bearer"


def test_smuggling_has_no_second_meaning(server, proxy):
    """What the two could read differently is refused by one of them, and nothing is answered after it."""
    via = proxy(server).via
    inner = b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"
    for headers in (["Content-Length: %d" % len(inner), "Transfer-Encoding: chunked"], ["Transfer-Encoding: xchunked", "Content-Length: 3"], ["Transfer-Encoding: chunked", "Transfer-Encoding: identity"],
                    ["Content-Length: 3", "Content-Length: 30"], ["Content-Length: +3"], ["Transfer-Encoding : chunked"]):
        with via.conn(timeout=20 * sv.SLOW) as c:
            c.try_send(wire.request("POST", TEXT, headers=headers) + b"0\r\n\r\n" + inner)
            try:
                assert c.answer().status >= 400
            except wire.Gone:
                continue
            try:
                assert "list" not in c.answer("GET").text(), "the inner request was served"
            except (wire.Gone, TimeoutError):
                pass
