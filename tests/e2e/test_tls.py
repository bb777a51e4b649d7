"""HTTPS: real clients, half clients, no clients; certificates that are wrong or change."""
import json
import os
import random
import signal
import socket
import ssl
import subprocess
import threading
import time

import httpx
import openai
import pytest

import server as sv
import wire

pytestmark = pytest.mark.san
TEXT = "/v1/completions"


def make_cert(folder, name, kind="ec"):
    """(certificate, key) for localhost and 127.0.0.1, signed by itself."""
    crt, key = str(folder / (name + ".crt")), str(folder / (name + ".key"))
    algo = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"] if kind == "ec" else ["-newkey", "rsa:2048"]
    subprocess.run(["openssl", "req", "-x509", *algo, "-nodes", "-keyout", key, "-out", crt, "-days", "2", "-subj", "/CN=" + name, "-addext",
                    "subjectAltName=DNS:localhost,IP:127.0.0.1"], check=True, stderr=subprocess.DEVNULL)
    return crt, key


@pytest.fixture(scope="module")
def certs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certs")
    return {n: make_cert(folder, n, k) for n, k in (("first", "ec"), ("second", "rsa"))}


def trust(*files, **kw):
    c = ssl.create_default_context(cafile=files[0])
    for f in files[1:]:
        c.load_verify_locations(f)
    for k, v in kw.items():
        setattr(c, k, v)
    return c


@pytest.fixture(scope="module")
def server(tiny, certs):
    crt, key = certs["first"]
    with sv.Server(tiny, "--ssl-certfile", crt, "--ssl-keyfile", key, "--timeout-request", str(4 * sv.SLOW), frontends=2, tls=trust(crt)) as s:
        s.ready()
        s.crt = crt
        yield s
        s.wait_idle()


def raw(s, timeout=20):
    c = socket.create_connection((s.host, s.port), timeout * sv.SLOW)
    c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return c


def read_all(c):
    out = b""
    try:
        while True:
            d = c.recv(65536)
            if not d:
                return out
            out += d
    except ConnectionError:
        return out


# ---- clients ----

def test_openai(server):
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="x", max_retries=0, http_client=httpx.Client(verify=trust(server.crt)))
    want = client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "hello"}], max_tokens=20, temperature=0)
    stream = client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "hello"}], max_tokens=20, temperature=0, stream=True)
    assert "".join(e.choices[0].delta.content or "" for e in stream if e.choices) == want.choices[0].message.content


def test_curl(server):
    def curl(*args):
        return subprocess.run(["curl", "-sS", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60 * sv.SLOW)
    p = curl("--cacert", server.crt, server.url + "/v1/models", "-w", "%{http_version} %{ssl_verify_result}")
    assert p.returncode == 0 and p.stdout.endswith(b"1.1 0"), p
    assert curl(server.url + "/v1/models").returncode == 60, "nobody trusts it otherwise"
    for flag in ("--tlsv1.2", "--tlsv1.3"):
        assert curl("--cacert", server.crt, flag, "--tls-max", flag[-3:], server.url + "/health").returncode == 0
    assert curl("--cacert", server.crt, "--tls-max", "1.1", server.url + "/health").returncode in (35, 4)
    p = curl("--cacert", server.crt, "--http1.0", "-N", server.url + TEXT, "-d", json.dumps({"model": "tiny", "prompt": "x", "max_tokens": 5, "stream": True}))
    assert p.returncode == 0 and p.stdout.endswith(b"data: [DONE]\n\n"), "the end of the connection is said, so that it is no cut"


def test_protocols(server):
    for offered, chosen in ((["h2", "http/1.1"], "http/1.1"), (["http/1.1"], "http/1.1"), ([], None)):
        c = trust(server.crt)
        if offered:
            c.set_alpn_protocols(offered)
        with server.conn(tls=c) as conn:
            assert conn.s.selected_alpn_protocol() == chosen and conn.s.version() == "TLSv1.3"
            assert conn.ask("GET", "/health").status == 200
    c = trust(server.crt)
    c.set_alpn_protocols(["h2"])
    with pytest.raises(ssl.SSLError):
        server.conn(tls=c)
    with pytest.raises(ssl.SSLError):
        server.conn(tls=trust(server.crt, maximum_version=ssl.TLSVersion.TLSv1_1))


def test_http_on_the_port_of_https(server):
    c = raw(server)
    c.sendall(wire.request("GET", "/health"))
    got = read_all(c)
    assert got.startswith(b"HTTP/1.1 400 ") and b"https://" in got, got


# ---- the same answers as without ----

def test_everything_at_once(server):
    """Keep-alive, pipelining, single bytes, large and chunked bodies, HEAD."""
    data = json.dumps({"model": "tiny", "prompt": "caf\u00e9", "max_tokens": 4, "temperature": 0}).encode()
    with server.conn() as c:
        want = c.ask("POST", TEXT, data).json()["choices"]
        c.send(wire.request("GET", "/live") * 50)
        assert [c.answer("GET").status for _ in range(50)] == [200] * 50
        for b in wire.request("POST", TEXT, data):
            c.send(bytes([b]))
        assert c.answer().json()["choices"] == want
        c.send(wire.request("POST", TEXT, headers=["Transfer-Encoding: chunked"]) + b"".join(b"1\r\n%c\r\n" % b for b in data) + b"0\r\n\r\n")
        assert c.answer().json()["choices"] == want
        assert c.ask("POST", TEXT, {**json.loads(data), "user": "x" * (8 << 20)}).json()["choices"] == want
        assert c.ask("HEAD", "/health").status == 200 and c.ask("GET", "/live").status == 200
        r = c.ask("GET", "/metrics", headers=["Connection: close"])
        assert r.status == 200 and c.at_end()
    with server.conn() as c:
        c.send(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000000\r\n\r\n" + b" " * 100000)
        assert c.answer().status == 413


def test_many_connections(server):
    """Handshakes and streams side by side, on both frontends."""
    out = []

    def one(i):
        st = server.stream("n %d" % (i % 5), max_tokens=30, ignore_eos=True)
        out.append((i % 5, st.finish()[0]))
    threads = [threading.Thread(target=one, args=(i,)) for i in range(40)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(out) == 40 and len(set(out)) == 5, "equal prompts have equal answers"


@pytest.mark.parametrize("how", ["notify", "fin", "reset"])
def test_a_client_that_is_gone_is_noticed(server, how):
    st = server.stream(max_tokens=4000, ignore_eos=True)
    assert st.next()
    plain = server.conn()
    plain.send(wire.request("POST", TEXT, {"model": "tiny", "prompt": "x", "max_tokens": 4000, "ignore_eos": True}))
    sv.wait_for("two run", lambda: server.metric("vllm:num_requests_running") == 2)
    for c in (st.conn, plain):
        if how == "notify":
            c.s.setblocking(False)
            try:
                c.s.unwrap()
            except (ssl.SSLError, OSError):
                pass
        c.close(reset=how == "reset")
    sv.wait_for("none runs", lambda: server.metric("vllm:num_requests_running") == 0, 4)


def test_a_client_that_does_not_read(server):
    """Its stream is held back, nobody else's; and what it missed is there when it reads again."""
    pids = server.kids("frontend")
    slow = wire.Stream(server.host, server.port, TEXT, {"model": "tiny", "prompt": "slow", "max_tokens": 3000, "ignore_eos": True, "stream": True, "logprobs": 5, "temperature": 0}, 300 * sv.SLOW,
                       rcvbuf=4096, tls=server.tls)
    models = server.conn(rcvbuf=4096)
    models.s.setblocking(False)
    sent = 0
    try:
        for _ in range(2000):
            sent += models.s.send(wire.request("GET", "/v1/models") * 20)
    except (ssl.SSLWantWriteError, BlockingIOError):
        pass
    begin = time.monotonic()
    for i in range(5):
        server.complete("other %d" % i)
    assert time.monotonic() - begin < 10 * sv.SLOW
    assert sum(sv.rss_mib(p) for p in pids) < 400 * sv.SLOW
    models.close(reset=True)
    text, ids, why = slow.finish()
    assert why == "length" and len(slow.events) > 1


# ---- what is no client ----

def test_garbage(server):
    hello = client_hello()
    for data in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", b"\0" * 1000, os.urandom(4096), b"\x16\x03\x01\xff\xff" + os.urandom(70000), hello[:50] + os.urandom(200), hello + os.urandom(500),
                 hello + hello, b"\x80\x2e\x01\x00\x02" + os.urandom(60), b"\x15\x03\x01\x00\x02\x02\x28"):
        c = raw(server)
        try:
            c.sendall(data)
            c.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        got = read_all(c)
        assert len(got) < 10000
        c.close()
    p = subprocess.run(["openssl", "s_client", "-connect", "%s:%d" % (server.host, server.port), "-quiet"], input=b"\x00\x01garbage\r\n\r\n", stdout=subprocess.PIPE,
                       stderr=subprocess.DEVNULL, timeout=30 * sv.SLOW)
    assert p.stdout.startswith(b"HTTP/1.1 400 "), p.stdout
    assert server.complete()["choices"]


def client_hello():
    c = ssl.create_default_context()
    a, b = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        c.wrap_bio(a, b, server_hostname="localhost").do_handshake()
    except ssl.SSLWantReadError:
        pass
    return b.read()


def test_cut_and_flipped_handshakes(server):
    hello, r = client_hello(), random.Random(4)
    conns = []
    for i in range(60):
        data = bytearray(hello[:r.randrange(1, len(hello))] if i % 2 else hello)
        if i % 2 == 0:
            data[r.randrange(len(data))] ^= 1 << r.randrange(8)
        c = raw(server)
        c.sendall(bytes(data))
        conns.append(c)
    assert server.complete()["choices"], "half handshakes are nobody's business"
    for c in conns:
        c.close()


def test_slow_handshake_ends(server):
    """Silence, and one byte a second: both have the time of a request, and hold nobody up."""
    hello = client_hello()
    silent, half, drip = raw(server, 30), raw(server, 30), raw(server, 30)
    half.sendall(hello[:100])
    begin, ended = time.monotonic(), {}
    i = 0
    while len(ended) < 3 and time.monotonic() - begin < 15 * sv.SLOW:
        if drip not in ended:
            try:
                drip.sendall(hello[i:i + 1])
                i += 1
            except OSError:
                ended[drip] = time.monotonic() - begin
        for c in (silent, half, drip):
            c.settimeout(0.2)
            try:
                if c not in ended and c.recv(100) == b"":
                    ended[c] = time.monotonic() - begin
            except socket.timeout:
                pass
            except OSError:
                ended[c] = time.monotonic() - begin
    assert len(ended) == 3 and min(ended.values()) > 2, ended
    assert server.complete()["choices"]


def test_descriptors_and_memory_come_back(server):
    pids = server.kids("frontend")
    fds, rss = sv.settled_fds(pids), sum(sv.rss_mib(p) for p in pids)
    for i in range(300):
        if i % 3 == 0:
            c = raw(server)
            c.sendall(client_hello()[:i])
            c.close()
        else:
            with server.conn() as c:
                assert c.ask("GET", "/live").status == 200
    sv.wait_for("descriptors are given back", lambda: all(sv.fd_count(p) <= n + 2 for p, n in zip(pids, fds)))
    assert sum(sv.rss_mib(p) for p in pids) < rss + 20 * sv.SLOW


# ---- certificates ----

@pytest.mark.parametrize("frontends", [1, 4])
def test_wrong_files_are_a_start_error_said_once(start, tiny, certs, tmp_path, frontends):
    (crt, key), (other, other_key) = certs["first"], certs["second"]
    locked = str(tmp_path / "locked.key")
    subprocess.run(["openssl", "ec", "-in", key, "-aes128", "-passout", "pass:secret", "-out", locked], check=True, stderr=subprocess.DEVNULL)
    for c, k, names, says in ((crt, other_key, other_key, "does not belong to the certificate"), (crt, "/nosuch.key", "/nosuch.key", "No such file"), ("/nosuch.crt", key, "/nosuch.crt", "No such file"),
                              (key, key, key, "no PEM certificate"), (crt, crt, crt, "no PEM key"), (crt, locked, locked, "without a password"), (str(tmp_path), key, str(tmp_path), "not a plain file")):
        s = start(tiny, "--ssl-certfile", c, "--ssl-keyfile", k, frontends=frontends)
        assert s.wait(20) == 1
        errors = s.lines("ERROR")
        assert len(errors) == 1 and names in errors[0] and says in errors[0], s.text()
        s.expect_nothing_left()
        s.release()


def test_key_without_certificate(start, tiny, certs):
    s = start(tiny, "--ssl-keyfile", certs["first"][1])
    assert s.wait() == 2 and "--ssl-keyfile needs --ssl-certfile" in s.text()


def test_one_file_for_both_and_keys(start, tiny, certs, tmp_path):
    """A PEM file that holds both; with API keys; with IPv6."""
    both = tmp_path / "both.pem"
    both.write_text("".join(open(f).read() for f in certs["second"]))
    s = start(tiny, "--ssl-certfile", str(both), "--api-key", "k", tls=trust(certs["second"][0]), key="k").ready()
    assert s.complete()["choices"]
    sv.wait_for("the log names the address", lambda: s.lines("ready: https://"))
    with s.conn(headers=[]) as c:
        assert c.ask("GET", "/v1/models").status == 401


def test_new_certificate_at_sighup(start, tiny, certs, tmp_path):
    crt, key = tmp_path / "live.crt", tmp_path / "live.key"

    def install(name):
        for src, dst in zip(certs[name], (crt, key)):
            dst.write_text(open(src).read())

    def shown():
        """Which certificates new connections are shown."""
        names = set()
        for _ in range(12):
            with s.conn() as c:
                names.add(dict(x[0] for x in c.s.getpeercert()["subject"])["commonName"])
        return names
    install("first")
    s = start(tiny, "--ssl-certfile", str(crt), "--ssl-keyfile", str(key), frontends=3, tls=trust(certs["first"][0], certs["second"][0])).ready()
    before = s.kids("")
    stream = s.stream(max_tokens=2000, ignore_eos=True)
    assert stream.next() and shown() == {"first"}
    install("second")
    s.p.send_signal(signal.SIGHUP)
    sv.wait_for("the second is shown", lambda: shown() == {"second"})
    key.write_text("nonsense")
    s.p.send_signal(signal.SIGHUP)
    sv.wait_for("it is refused", lambda: len(s.lines("SIGHUP", str(key), "stays as it is")) == 3)
    assert shown() == {"second"}
    assert stream.finish()[2] == "length" and s.kids("") == before


def test_no_room_for_another(start, tiny, certs):
    s = start(tiny, "--ssl-certfile", certs["first"][0], "--ssl-keyfile", certs["first"][1], "--max-connections", "3", tls=trust(certs["first"][0])).ready()
    sv.wait_for("the connections of waiting are gone", lambda: s.metric("sluice:connections") <= 1)
    held = [raw(s) for _ in range(3)]
    sv.wait_for("a handshake is refused", lambda: refused(s))
    for c in held:
        c.close()
    sv.wait_for("room again", lambda: not refused(s))


def refused(s):
    try:
        with s.conn(timeout=5 * sv.SLOW) as c:
            return c.ask("GET", "/live").status != 200
    except OSError:
        return True
