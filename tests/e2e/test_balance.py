"""Connections that go from frontend to frontend: each serves as many requests, a frontend that retires is left by its clients, and
nobody notices. Decisions are in unit/test_balance.c, single moves in unit/test_siblings.c; here are real processes."""
import array
import glob
import os
import re
import selectors
import signal
import socket
import ssl
import subprocess
import threading
import time

import pytest

import server as sv
import wire


def counts(s, name="http_requests_total"):
    """{frontend: value}"""
    return {k.split('"')[1]: v for k, v in s.metrics().items() if k.startswith("sluice:frontend_%s{" % name)}


class Loops(threading.Thread):
    """Clients on kept connections that ask again as soon as they have their answer: tokens[i] each time."""

    def __init__(self, s, tokens):
        super().__init__()
        self.sel, self.stop, self.errors, self.n, self.read = selectors.DefaultSelector(), threading.Event(), [], 0, {}
        for t in tokens:
            c = s.conn(timeout=600)
            c.asks = wire.request("POST", "/v1/completions", {"model": "tiny", "prompt": "x", "max_tokens": t, "ignore_eos": True})
            c.s.setblocking(False)
            self.sel.register(c.s, selectors.EVENT_READ, c)

    def answered(self, c):
        """Whole answers take themselves out of the buffer."""
        at = c.buf.find(b"\r\n\r\n")
        if at < 0:
            return False
        head = c.buf[:at].lower()
        assert head.startswith(b"http/1.1 200 ") and b"connection: close" not in head, c.buf
        end = at + 4 + int(re.search(rb"content-length: (\d+)", head).group(1))
        if len(c.buf) < end:
            return False
        c.buf = c.buf[end:]
        return True

    def run(self):
        conns = [k.data for k in self.sel.get_map().values()]
        try:
            for c in conns:
                c.s.send(c.asks)
            while not self.stop.is_set():
                for key, _ in self.sel.select(0.1):
                    c = key.data
                    data = c.s.recv(65536)
                    assert data, "a connection was closed"
                    c.buf += data
                    if self.answered(c):
                        self.n += 1
                        c.s.send(c.asks)
        except Exception as e:  # told by the test's thread
            self.errors.append(e)
        for c in conns:
            c.s.close()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *why):
        self.stop.set()
        self.join()
        assert not self.errors, self.errors


def is_even(s, seconds, within=0.1):
    a = counts(s)
    time.sleep(seconds)
    b = counts(s)
    n = [b[k] - a[k] for k in b]
    mean = sum(n) / len(n)
    print(n, list(counts(s, "connections").values()), s.metric("sluice:handed_over_total"))
    return len(n) == 4 and mean > 0 and all(abs(x / mean - 1) <= within for x in n)


@pytest.mark.parametrize("tokens", [[1] * 64, [1, 20, 1, 200] * 16], ids=["equal", "mixed"])
def test_each_frontend_serves_as_many_requests(start, tiny, tokens):
    """Steps take a time here, so that what a client gets depends on what it asks for and not on who has a core at the moment."""
    s = start(tiny, "--device", "null", "--null-step-us", "10000", frontends=4).ready()
    with Loops(s, tokens) as loops:
        sv.wait_for("answers", lambda: loops.n > 64)
        assert any(is_even(s, 2) for _ in range(6))
        assert is_even(s, 2, 0.2)  # and stays so
    sv.wait_for("all have arrived", lambda: s.metric("sluice:handed_over_total") == s.metric("sluice:adopted_total"))


def test_connections_stay_when_asked_to(start, tiny):
    s = start(tiny, "--device", "null", "--null-step-us", "1000", "--no-balance-connections", frontends=4).ready()
    with Loops(s, [1] * 10) as loops:
        sv.wait_for("answers", lambda: loops.n > 5000)
    assert s.metric("sluice:handed_over_total") == 0


def command(s, *words):
    r = subprocess.run([sv.SLUICE, *words, "--mesh", str(s.p.pid)], env={**os.environ, "TMPDIR": s.tmp}, capture_output=True, text=True, timeout=60 * sv.SLOW)
    assert r.returncode == 0, r


@pytest.mark.san
def test_requests_are_whole_while_frontends_come_and_go(start, tiny):
    s = start(tiny, "--device", "null", frontends=2).ready()
    before = sum(sv.settled_fds(s.kids("frontend")))
    errors, stop, n = [], threading.Event(), [0] * 12
    prompt = "word " * 500

    def run(i):
        body = {"model": "tiny", "prompt": prompt if i % 3 == 1 else "x", "max_tokens": 1 + 30 * (i % 3 == 2)}
        data = wire.request("POST", "/v1/completions", body)
        try:
            with s.conn(timeout=600) as c:
                while not stop.is_set():
                    if i % 3 == 0:  # pipelined
                        c.send(data * 3)
                        answers = [c.answer() for _ in range(3)]
                    elif i % 3 == 1:  # a large body that comes slowly
                        for at in range(0, len(data), 700):
                            c.send(data[at:at + 700])
                            time.sleep(0.005)
                        answers = [c.answer()]
                    else:
                        c.send(data)
                        answers = [c.answer()]
                    for a in answers:
                        assert a.status == 200 and not a.closes(), a
                        assert a.json()["usage"]["prompt_tokens"] > (500 if i % 3 == 1 else 0)
                    n[i] += 1
        except Exception as e:  # told by the test's thread
            errors.append("client %d: %r" % (i, e))

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(n))]
    for t in threads:
        t.start()
    try:
        for words in (("scale", "frontends", "1"), ("scale", "frontends", "3"), ("reload",), ("scale", "frontends", "2")):
            command(s, *words)
            at = list(n)
            sv.wait_for("all go on", lambda: errors or all(b > a for a, b in zip(at, n)))
    finally:
        stop.set()
        for t in threads:
            t.join()
    assert not errors, errors
    assert s.metric("sluice:handed_over_total") >= len(n)
    # Listening sockets are never closed: the third one is lent to one of the two. And with its first connection libuv opens one that it keeps.
    sv.wait_for("no descriptor is left", lambda: sum(sv.fd_count(p) for p in s.kids("frontend")) <= before + 1 + 2)


def answers_of(conns):
    """Those whose frontend answers within a second."""
    out = []
    for c in conns:
        c.send(wire.request("GET", "/live"))
    with selectors.DefaultSelector() as sel:
        for c in conns:
            sel.register(c.s, selectors.EVENT_READ, c)
        until = time.monotonic() + sv.SLOW
        while time.monotonic() < until:
            for key, _ in sel.select(0.1):
                assert key.data.answer().status == 200
                out.append(key.data)
                sel.unregister(key.fileobj)
    return out


def test_a_stopped_or_dead_receiver_loses_nothing(start, tiny):
    s = start(tiny, "--device", "null", "--no-balance-connections", "--heartbeat-timeout", "5", frontends=2).ready()
    stays, goes = s.kids("frontend")  # the younger one retires
    conns = [s.conn(timeout=600) for _ in range(60)]
    try:
        os.kill(stays, signal.SIGSTOP)
        movers = answers_of(conns)
        assert 0 < len(movers) < 60
        scale = threading.Thread(target=command, args=(s, "scale", "frontends", "1"))
        os.kill(stays, signal.SIGCONT)
        sv.wait_for("it beats again", lambda: s.get("/ready").status == 200)
        n_fds = sv.fd_count(goes)
        os.kill(stays, signal.SIGSTOP)
        scale.start()
        sv.wait_for("some are on their way", lambda: sv.fd_count(goes) < n_fds - 2)
        with_sender = answers_of(movers)
        assert len(with_sender) < len(movers)  # those that its inbox does not hold stay where they are
        os.kill(stays, signal.SIGKILL)
        scale.join()
        for c in movers:
            c.deadline = time.monotonic() + 20 * sv.SLOW
            if c in with_sender:
                c.send(wire.request("GET", "/live"))
            assert c.answer().status == 200
        assert len(s.kids("frontend")) == 1
    finally:
        for c in conns:
            c.close()


def test_junk_in_an_inbox_is_dropped(start, tiny):
    s = start(tiny, "--device", "null", frontends=2).ready()
    before, dropped = sv.settled_fds(s.kids("frontend")), s.metric("sluice:frontend_dropped_total")
    inboxes = glob.glob(os.path.join(s.tmp, "*", "inbox-*"))
    assert len(inboxes) == 2
    with s.conn() as c, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out, open("/dev/null") as null:
        for i in range(100):
            for path in inboxes:
                data = os.urandom((0, 1, 40, 41, 5000)[i % 5])
                fds = array.array("i", [out.fileno(), null.fileno()][:i % 3])
                out.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)] if fds else [], 0, path)
        assert c.ask("GET", "/live").status == 200
        sv.wait_for("all are counted", lambda: s.metric("sluice:frontend_dropped_total") >= dropped + 200)
        assert c.ask("GET", "/live").status == 200
    # With its first connection libuv opens one that it keeps.
    sv.wait_for("descriptors are closed", lambda: all(sv.fd_count(p) <= n + 1 for p, n in zip(s.kids("frontend"), before)))
    assert s.complete()["choices"]


def test_tls_connections_end_instead(start, tiny, tmp_path):
    """What TLS has agreed on is in its process: the next answer says that it is the last one on this connection."""
    cert, key = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", cert, "-days", "1",
                    "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    s = start(tiny, "--device", "null", "--ssl-certfile", cert, "--ssl-keyfile", key, frontends=2, tls=ssl.create_default_context(cafile=cert)).ready()
    conns = [s.conn(timeout=60) for _ in range(12)]
    assert all(c.ask("GET", "/live").status == 200 for c in conns)
    scale = threading.Thread(target=command, args=(s, "scale", "frontends", "1"))
    scale.start()
    ended = 0
    while scale.is_alive():
        for c in list(conns):
            a = c.ask("GET", "/live")
            assert a.status == 200
            if a.closes():
                conns.remove(c.close() or c)
                ended += 1
    scale.join()
    assert 0 < ended < 12 and len(s.kids("frontend")) == 1 and s.metric("sluice:handed_over_total") == 0
    for c in conns:
        c.close()
