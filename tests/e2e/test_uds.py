"""A UNIX socket in place of a port: several frontends on one, files of dead servers, and what must not be taken away."""
import os
import signal
import socket
import stat
import subprocess
import threading

import httpx
import openai
import pytest

import server as sv
import wire

pytestmark = pytest.mark.san
TEXT = "/v1/completions"


@pytest.fixture(autouse=True)  # so it looks when the servers have ended
def path(tmp_path_factory):
    """Short: a socket's path has 107 bytes at most."""
    folder = tmp_path_factory.mktemp("u")
    yield str(folder / "s")
    assert not os.path.lexists(str(folder / "s")), "the socket's file is left"


def test_it_serves(start, tiny, path):
    s = start(tiny, frontends=3, host=path).ready()
    sv.wait_for("the log names it", lambda: s.lines("ready: unix:" + path))
    assert s.complete()["choices"]
    out = subprocess.run(["curl", "-sS", "--unix-socket", path, "http://any/v1/models"], stdout=subprocess.PIPE, timeout=60).stdout
    assert b'"tiny"' in out
    client = openai.OpenAI(base_url="http://any/v1", api_key="x", http_client=httpx.Client(transport=httpx.HTTPTransport(uds=path)))
    assert client.completions.create(model="tiny", prompt="x", max_tokens=3).choices
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o666
    with socket.socket() as tcp:
        assert tcp.connect_ex(("127.0.0.1", s.port)) != 0, "no port is opened beside it"
    s.stop()
    assert not os.path.lexists(path)


def test_all_frontends_accept(start, tiny, path):
    """One listening socket for all: each takes connections, none is lost, and a dead one is replaced."""
    s = start(tiny, frontends=3, host=path).ready()
    pids, out = s.kids("frontend"), []

    def one(i):
        out.append(s.complete("n %d" % (i % 3), max_tokens=20, ignore_eos=True)["choices"][0]["text"])

    def burst(n):
        threads = [threading.Thread(target=one, args=(i,)) for i in range(n)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    burst(60)
    assert len(out) == 60 and len(set(out)) == 3
    held = [s.conn() for _ in range(90)]
    for c in held:
        assert c.ask("GET", "/live").status == 200
    counts = [sv.fd_count(p) for p in pids]
    for c in held:
        c.close()
    assert sum(n > min(counts) - 1 for n in counts) == 3
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    sv.wait_for("three new ones", lambda: len(set(s.kids("frontend")) - set(pids)) == 3)
    s.ready()
    burst(10)
    assert len(out) == 70 and len(set(out)) == 3


def test_a_client_that_is_gone_is_noticed(start, tiny, path):
    s = start(tiny, host=path).ready()
    streams = [s.stream(max_tokens=4000, ignore_eos=True) for _ in range(2)]
    for st in streams:
        assert st.next()
    plain = s.conn()
    plain.send(wire.request("POST", TEXT, {"model": "tiny", "prompt": "x", "max_tokens": 4000, "ignore_eos": True}))
    full = s.conn()  # with more behind it than is read while it is answered
    full.s.setblocking(False)
    data = wire.request("POST", TEXT, {"model": "tiny", "prompt": "x", "max_tokens": 4000, "ignore_eos": True}) + wire.request("GET", "/live") * 20000
    try:
        while data:
            data = data[full.s.send(data):]
    except BlockingIOError:
        pass
    sv.wait_for("four run", lambda: s.metric("vllm:num_requests_running") == 4)
    for c in (*streams, plain, full):
        c.close()
    sv.wait_for("none runs", lambda: s.metric("vllm:num_requests_running") == 0, 4)


def test_a_slow_reader_is_held_back(start, tiny, path):
    s = start(tiny, "--timeout-write", "2", host=path).ready()
    c = s.conn()
    c.s.setblocking(False)
    try:
        for _ in range(5000):
            c.s.send(wire.request("GET", "/metrics") * 20)
    except BlockingIOError:
        pass
    assert s.complete()["choices"] and sum(sv.rss_mib(p) for p in s.kids("frontend")) < 300 * sv.SLOW
    sv.wait_for("it is given up", lambda: s.metric("sluice:connections") <= 1, 15)
    c.close()


def test_the_file_of_a_dead_server_is_replaced(start, tiny, path):
    a = start(tiny, host=path).ready()
    os.kill(a.p.pid, signal.SIGKILL)
    a.p.wait()
    sv.wait_for("it is gone", lambda: not a.pids())
    assert os.path.exists(path), "nobody was left to remove it"
    a.release()
    b = start(tiny, host=path).ready()
    assert b.complete()["choices"]


def test_a_live_server_keeps_its_socket(start, tiny, path):
    a = start(tiny, host=path).ready()
    b = start(tiny, host=path)
    assert b.wait() == 1 and "another server listens there" in b.text() and path in b.text(), b.text()
    b.release()
    assert a.complete()["choices"]
    # Also one that accepts nothing at the moment.
    os.kill(a.kids("frontend")[0], signal.SIGSTOP)
    c = start(tiny, host=path)
    assert c.wait() == 1 and "another server listens there" in c.text()
    c.release()
    os.kill(a.kids("frontend")[0], signal.SIGCONT)
    assert a.complete()["choices"]


def test_two_that_start_at_once(start, tiny, path):
    """One of them gets the file that a dead one left, the other is refused."""
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
        dead.listen()
    both = [start(tiny, host=path) for _ in range(3)]
    sv.wait_for("two are refused", lambda: sum(s.p.poll() == 1 for s in both) == 2)
    winner = next(s for s in both if s.p.poll() is None).ready()
    assert winner.complete()["choices"]
    for s in both:
        if s is not winner:
            s.release()


def test_what_is_no_socket_stays(start, tiny, tmp_path):
    f = tmp_path / "file"
    f.write_text("precious")
    link = tmp_path / "link"
    link.symlink_to(f)
    for path, says in ((str(f), "no socket"), (str(tmp_path), "no socket"), (str(link), "no socket"), (str(tmp_path / "nosuch" / "s"), "No such file"), (str(tmp_path / ("x" * 120)), "at most 107")):
        s = start(tiny, host=path)
        assert s.wait() in (1, 2) and "--uds" in s.text() and says in s.text(), s.text()
        s.release()
    assert f.read_text() == "precious" and link.is_symlink()


def test_a_successor_keeps_its_file(start, tiny, path):
    """Somebody removes the file and starts another server: the end of the first must not take it away."""
    a = start(tiny, host=path).ready()
    os.unlink(path)
    b = start(tiny, host=path).ready()
    a.p.send_signal(signal.SIGTERM)
    assert a.wait() == 0
    a.release()
    assert b.complete()["choices"]


def test_with_keys_and_tls(start, tiny, path, tmp_path):
    import ssl
    import test_tls
    crt, key = test_tls.make_cert(tmp_path, "uds")
    trust = ssl.create_default_context(cafile=crt)
    trust.check_hostname = False
    s = start(tiny, "--ssl-certfile", crt, "--ssl-keyfile", key, "--api-key", "k", host=path, tls=trust, key="k", frontends=2).ready()
    assert s.complete()["choices"]
    with s.conn(headers=[]) as c:
        assert c.ask("GET", "/v1/models").status == 401
