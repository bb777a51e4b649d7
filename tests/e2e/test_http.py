"""HTTP at its edges: framing, limits, methods, broken bodies. Each test is a kind of fault that other servers had."""
import json
import os
import socket
import time

import pytest

import server as sv
import wire

pytestmark = pytest.mark.san
TEXT = "/v1/completions"
CHAT = "/v1/chat/completions"
BODY = {"model": "tiny", "prompt": "caf\u00e9 \U0001fae0 inn", "max_tokens": 4, "temperature": 0}


def body(**kw):
    return json.dumps({**BODY, **kw}, ensure_ascii=False).encode()


def text_of(answer):
    assert answer.status == 200, answer
    return answer.json()["choices"][0]["text"]


# ---- chunked bodies ----

@pytest.mark.parametrize("sizes", [[1, 7], [1] * 40, [1000], [15, 2, 1]])
def test_chunked_body_is_read(server, sizes):
    data = body()
    cut, chunks = 0, []
    for n in [*sizes, len(data)]:
        piece = data[cut:cut + n]
        if piece:
            chunks.append(b"%x\r\n%s\r\n" % (len(piece), piece))
        cut += n
    head = wire.request("POST", TEXT, headers=["Transfer-Encoding: chunked", "Content-Type: application/json"])
    with server.conn() as c:
        for part in (head, *chunks, b"0\r\n\r\n"):
            c.send(part)
        assert text_of(c.answer()) == text_of(c.ask("POST", TEXT, data))


def test_chunk_extensions_and_trailers_are_read_over(server):
    data = body()
    with server.conn() as c:
        c.send(wire.request("POST", TEXT, headers=["Transfer-Encoding: chunked"]) +
               b"%x;name=value\r\n%s\r\n0\r\nX-Trailer: 1\r\n\r\n" % (len(data), data))
        first = text_of(c.answer())
        assert first == text_of(c.ask("POST", TEXT, data)), "the connection goes on after it"


@pytest.mark.parametrize("chunk", [b"zz\r\n", b"-1\r\nab\r\n", b"4\r\nabcdefgh\r\n0\r\n\r\n", b"ffffffffffffffffff\r\n", b"4;" + b"x" * 100000])
def test_bad_chunks_are_refused(server, chunk):
    with server.conn() as c:
        c.try_send(wire.request("POST", TEXT, headers=["Transfer-Encoding: chunked"]) + chunk)
        r = c.answer()
        assert 400 <= r.status < 500 and r.closes(), r


@pytest.mark.parametrize("size", [b"7fffffffffffffff", b"ffffffffff", b"2000001", b"0000000002000001;x=y"])
def test_absurd_chunk_sizes_are_refused_at_once(server, size):
    """Before the sender, who will never send it, runs into the request's timeout."""
    with server.conn(timeout=10 * sv.SLOW) as c:
        c.send(wire.request("POST", TEXT, headers=["Transfer-Encoding: chunked"]) + b"1\r\n \r\n" + size + b"\r\n")
        r = c.answer()
        assert r.status in (400, 413) and r.closes(), r


@pytest.mark.parametrize("coding, status", [("gzip", 415), ("br", 415), ("zstd, gzip", 415), ("x" * 500, 415), ("\u00e4", 415), ("identity", 200), ("Identity", 200), ("", 200)])
def test_coded_bodies_are_refused_by_name(server, coding, status):
    with server.conn() as c:
        c.send(wire.request("POST", TEXT, body(), headers=["Content-Encoding: " + coding]))
        r = c.answer()
        assert r.status == status, r
        if status == 415:
            assert coding[:40] in r.error()["message"] and r.headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("headers", [["Content-Length: 5", "Transfer-Encoding: chunked"], ["Content-Length: 5", "Content-Length: 6"], ["Content-Length: -1"],
                                     ["Content-Length: 1e3"], ["Content-Length: 99999999999999999999999"], ["Transfer-Encoding: gzip, chunked, identity"]])
def test_two_meanings_of_a_length_are_refused(server, headers):
    """What a proxy in front reads one way and we another would smuggle a request."""
    with server.conn() as c:
        c.try_send(wire.request("POST", TEXT, headers=headers) + b"0\r\n\r\nGET /live HTTP/1.1\r\nHost: x\r\n\r\n")
        r = c.answer()
        assert 400 <= r.status < 600 and r.closes(), r
        assert c.at_end(), "nothing may be answered after it"


# ---- pipelining ----

def test_pipelined_requests_are_answered_in_order(server):
    with server.conn() as c:
        c.send(wire.request("GET", "/v1/models") + wire.request("POST", TEXT, body()) + wire.request("GET", "/version", headers=["Connection: close"]))
        first, second, third = c.answer("GET"), c.answer(), c.answer("GET")
        assert first.json()["object"] == "list" and second.json()["object"] == "text_completion"
        assert "version" in third.json() and third.closes() and c.at_end()


def test_hundred_pipelined_requests(server):
    with server.conn() as c:
        c.send(b"".join(wire.request("GET", "/v1/models") + wire.request("POST", "/tokenize", {"model": "tiny", "prompt": str(i)}) for i in range(50)))
        for i in range(50):
            assert c.answer("GET").json()["object"] == "list"
            assert c.answer().json()["count"] == len(str(i))


def test_request_in_single_bytes(server):
    with server.conn() as c:
        for b in wire.request("POST", TEXT, body(max_tokens=1)):
            c.send(bytes([b]))
        assert c.answer().status == 200


def test_bytes_after_a_stream_are_the_next_request(server):
    with server.conn() as c:
        c.send(wire.request("POST", TEXT, body(stream=True)) + wire.request("GET", "/live"))
        assert c.answer().body.endswith(b"data: [DONE]\n\n")
        assert c.answer("GET").status == 200


# ---- limits ----

@pytest.mark.parametrize("head", [
    b"X-A: " + b"a" * (1 << 20), b"".join(b"X-%d: v\r\n" % i for i in range(20000)), b"A" * (4 << 20), b"X: " + b"\t" * (1 << 20)],
    ids=["one huge header", "many headers", "endless name", "endless blanks"])
def test_head_has_a_limit(server, head):
    before = sum(sv.rss_mib(p) for p in server.kids("frontend"))
    with server.conn() as c:
        c.try_send(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n" + head)
        try:
            r = c.answer("GET")
            assert r.status in (400, 413, 431) and r.closes(), r
        except wire.Gone:
            pytest.fail("closed without an answer")
    assert sum(sv.rss_mib(p) for p in server.kids("frontend")) < before + 30 * sv.SLOW


def test_long_target_is_refused(server):
    with server.conn() as c:
        c.try_send(b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\nHost: x\r\n\r\n")
        assert c.answer("GET").status in (400, 404, 414, 431)


def test_body_has_a_limit(server):
    with server.conn() as c:
        c.send(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000000\r\n\r\n")
        r = c.answer()
        assert r.status == 413 and r.closes(), r
    with server.conn() as c:  # the same, without a length to see it by
        c.send(wire.request("POST", TEXT, headers=["Transfer-Encoding: chunked"]))
        piece = b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
        for _ in range(64):
            if not c.try_send(piece):
                break
        assert c.answer().status == 413


def test_large_body_below_the_limit_is_read(server):
    r = server.post(TEXT, body(user="x" * (8 << 20)))
    assert r.status == 200, r


def test_expect_continue(server):
    data = body(max_tokens=1)
    with server.conn() as c:
        c.send(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(data))
        assert c.line().startswith(b"HTTP/1.1 100"), "the body is asked for before it is sent"
        assert c.line() == b""
        c.send(data)
        assert c.answer().status == 200
    with server.conn() as c:
        c.send(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2000000000\r\n\r\n")
        assert c.answer().status == 413


# ---- methods ----

def test_preflight_needs_nothing(server):
    r = server.ask("OPTIONS", CHAT, headers=["Origin: http://a.example", "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: authorization,content-type"])
    assert r.status in (200, 204)
    assert r.headers["access-control-allow-origin"] and "POST" in r.headers["access-control-allow-methods"]
    allowed = r.headers["access-control-allow-headers"].lower()
    assert "authorization" in allowed and "content-type" in allowed


def test_answers_may_be_read_by_browsers(server):
    for r in (server.get("/v1/models", headers=["Origin: http://a.example"]), server.post(TEXT, b"{", headers=["Origin: http://a.example"])):
        assert r.headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize("path", ["/health", "/ready", "/live", "/version", "/metrics", "/v1/models", "/nosuch"])
def test_head_is_get_without_a_body(server, path):
    with server.conn() as c:
        get = c.ask("GET", path)
        head = c.ask("HEAD", path)
        assert head.status == get.status and head.headers["content-type"] == get.headers["content-type"]
        assert c.ask("GET", "/live").status == 200, "no byte of a body came"


@pytest.mark.parametrize("method, path, status, allow", [
    ("GET", "/nosuch", 404, None), ("POST", "/", 404, None), ("GET", "/v1/models/", 404, None), ("GET", CHAT, 405, "POST"), ("DELETE", "/v1/models", 405, "GET"),
    ("PUT", TEXT, 405, "POST"), ("POST", "/health", 405, "GET"), ("PATCH", "/metrics", 405, "GET")])
def test_wrong_path_and_method(server, method, path, status, allow):
    with server.conn() as c:
        r = c.ask(method, path, b"" if method != "GET" else None)
        assert r.status == status and r.error()["code"] is not None or r.status == status, r
        if allow:
            assert allow in r.headers["allow"]
        assert c.ask("GET", "/live").status == 200


def test_http_1_0(server):
    with server.conn() as c:
        c.send(b"GET /live HTTP/1.0\r\n\r\n")
        assert c.answer("GET").status == 200 and c.at_end()
    with server.conn() as c:
        data = body(stream=True)
        c.send(b"POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
        r = c.answer()
        assert "transfer-encoding" not in r.headers and r.body.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("raw", [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\r\n\r\n\r\n" * 1000,
                                 b"GET\r\n\r\n", os.urandom(4096), b"GET /live HTTP/1.1\r\nHost : x\r\n\r\n", b"GET /live HTTP/1.1\r\nA: b\r\n c\r\n\r\n"])
def test_what_is_not_http(server, raw):
    with server.conn(timeout=10) as c:
        c.try_send(raw)
        c.s.shutdown(socket.SHUT_WR)
        try:
            assert 400 <= c.answer("GET").status < 600
        except wire.Gone:
            pass


# ---- JSON ----

BROKEN = [b"", b"{", b"[]", b"null", b"1", b'"x"', json.dumps(BODY).encode() + b"x", b'{"model":"tiny","prompt":"\xff"}', b'{"model":"tiny","prompt":"a\nb"}',
          b'{"model":"tiny","prompt":"x","temperature":NaN}', b'{"model":"tiny","prompt":"x","temperature":1e999}', b'{"model":"tiny","prompt":"\\ud800"}',
          b'{"model":"tiny","prompt":"\xed\xa0\x80"}', b'{"model":"tiny","prompt":"\xc0\x80"}', b"{'model':'tiny'}", b'{"model":"tiny",}', b"\x00" * 100, b"\xff\xfe{\x00}\x00"]


@pytest.mark.parametrize("raw", BROKEN, ids=range(len(BROKEN)))
def test_broken_json_is_the_clients_fault(server, raw):
    for path in (TEXT, CHAT, "/tokenize", "/detokenize"):
        with server.conn() as c:
            r = c.ask("POST", path, raw)
            assert r.status == 400 and r.error()["type"], (path, r)
            assert c.ask("GET", "/live").status == 200, "the connection goes on"


@pytest.mark.parametrize("raw", [b'{"model":"tiny","prompt":"x","prompt":"y","max_tokens":1}', b"\xef\xbb\xbf" + json.dumps(BODY).encode(), b'  {"model":"tiny","prompt":"a\\u0000b","max_tokens":1} \n'])
def test_odd_json_is_never_our_fault(server, raw):
    assert server.post(TEXT, raw).status in (200, 400)


@pytest.mark.parametrize("depth", [100, 1000, 100000, 1000000])
def test_deep_nesting(server, depth):
    deep = b"[" * depth + b"]" * depth
    for raw in (b'{"model":"tiny","prompt":"x","max_tokens":1,"z":%s}', b'{"model":"tiny","prompt":%s}', b'{"model":"tiny","messages":%s}', b'{"model":"tiny","messages":[{"role":"user","content":%s}]}',
                b'{"model":"tiny","messages":[{"role":"user","content":"x"}],"tools":%s}'):
        path = CHAT if b"messages" in raw else TEXT
        r = server.post(path, raw % deep)
        assert r.status in (200, 400), r
        objects = server.post(path, raw % (b'{"a":' * depth + b"1" + b"}" * depth))
        assert objects.status in (200, 400), objects
    assert server.post(TEXT, b"[" * depth).status == 400


def test_key_of_another_content_type(server):
    """curl -d sends a form's content type; what counts is the body."""
    assert server.post(TEXT, body(), headers=["Content-Type: application/x-www-form-urlencoded"]).status in (200, 415)


# ---- connections ----

def test_keep_alive(server):
    with server.conn() as c:
        for _ in range(20):
            r = c.ask("GET", "/v1/models")
            assert r.status == 200 and not r.closes()
        assert c.ask("GET", "/v1/models", headers=["Connection: close"]).closes() and c.at_end()


def test_slow_and_silent_requests_end(start, tiny):
    s = start(tiny, "--timeout-request", "1", "--timeout-keep-alive", "1").ready()
    with s.conn() as silent, s.conn() as slow, s.conn() as half, s.conn() as idle:
        slow.send(b"GET /live HT")
        half.send(wire.request("POST", TEXT, b"x" * 10)[:-5])
        assert idle.ask("GET", "/live").status == 200
        begin = time.monotonic()
        for c in (slow, half):
            r = c.answer()
            assert r.status == 408 and r.closes(), r
        assert silent.at_end(10) and idle.at_end(10)
        assert time.monotonic() - begin < 10 * sv.SLOW
    sv.wait_for("no connection is kept", lambda: s.metric("sluice:connections") <= 1)


def test_more_connections_than_allowed(start, tiny):
    s = start(tiny, "--max-connections", "8").ready()
    sv.wait_for("the connections of waiting are gone", lambda: s.metric("sluice:connections") <= 1)
    held = []

    def hold():
        """One more; the last connection of the waiting may end only now."""
        c = s.conn()
        if c.ask("GET", "/live").status == 200:
            held.append(c)
        else:
            c.close()
        return len(held) == 8
    sv.wait_for("eight are held", hold)
    with s.conn(timeout=10) as c:
        c.try_send(wire.request("GET", "/live"))
        try:
            r = c.answer("GET")
            assert r.status == 503 and r.closes(), r
        except wire.Gone:
            pytest.fail("refused without a word")
    for c in held:
        c.close()
    assert sv.wait_for("room again", lambda: s.get("/live").status == 200)


def test_out_of_descriptors_is_503_and_no_spin(start, tiny):
    s = start(tiny, wrap=("prlimit", "--nofile=512:512")).ready()
    held = []
    try:
        for _ in range(500):
            c = s.conn(timeout=10)
            c.try_send(wire.request("GET", "/live"))
            held.append(c)
        seen = set()
        for c in held:
            try:
                seen.add(c.answer("GET").status)
            except (OSError, TimeoutError):
                seen.add(0)
        assert 200 in seen and 503 in seen, seen
        pid = s.kids("frontend")[0]
        ticks = lambda: sum(map(int, sv.read_proc(pid, "stat").rsplit(b")", 1)[1].split()[11:13]))
        before = ticks()
        time.sleep(1)  # this is the measurement: processor time in one second
        assert ticks() - before < 30 * sv.SLOW, "the frontend spins"
    finally:
        for c in held:
            c.close()
    sv.wait_for("room again", lambda: s.get("/live").status == 200)


def test_request_ids(server):
    assert server.get("/live", headers=["X-Request-Id: my-id-1"]).headers["x-request-id"] == "my-id-1"
    a, b = (server.get("/live").headers["x-request-id"] for _ in range(2))
    assert a != b
    r = server.get("/live", headers=["X-Request-Id: " + "a" * 5000])
    assert len(r.headers["x-request-id"]) < 1000


def test_every_answer_has_an_id(start, tiny):
    """Also those to what is no request, and those for which there is no room."""
    s = start(tiny, "--timeout-request", "1", "--max-connections", "4").ready()
    chunked = wire.request("POST", TEXT, headers=["Transfer-Encoding: chunked", "X-Request-Id: mine-3"])
    for raw, status in ((wire.request("GET", "/nosuch"), 404), (wire.request("PUT", TEXT), 405), (wire.request("OPTIONS", TEXT), 204), (wire.request("POST", TEXT, b"{"), 400),
                        (b"GET / HTTP/1.1\r\n\r\n", 400), (b"\0\0", 400), (b"GET / HTTP/9.9\r\n\r\n", 505), (b"GET / HTTP/1.1\r\nA: " + b"a" * 20000, 431), (b"GET / HT", 408),
                        (wire.request("POST", TEXT, body(), headers=["Content-Encoding: br"]), 415), (wire.request("POST", TEXT, body(stream=True)), 200),
                        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n", 413), (chunked + b"zz\r\n", 400)):
        sv.wait_for("there is room", lambda: s.metric("sluice:connections") <= 2)
        with s.conn(timeout=20 * sv.SLOW) as c:
            c.send(raw)
            r = c.answer()
            assert r.status == status and len(r.headers["x-request-id"]) >= 6, (raw[:60], r)
            assert (r.headers["x-request-id"] == "mine-3") == (b"mine-3" in raw), "the client's own, as far as it has arrived"
    held = [s.conn() for _ in range(8)]
    answers = [c.ask("GET", "/live") for c in held]
    assert {r.status for r in answers} == {200, 503} and len({r.headers["x-request-id"] for r in answers}) == 8
    for c in held:
        c.close()


@pytest.mark.parametrize("given", ["a b", "\x01", "\u00e9", "x" * 129, "\t", "a\tb", ""])
def test_harmful_request_ids_are_replaced(server, given):
    with server.conn() as c:
        c.send(b"GET /live HTTP/1.1\r\nHost: x\r\nX-Request-Id: " + given.encode() + b"\r\n\r\n")
        r = c.answer("GET")
        assert r.status == 400 or (r.headers["x-request-id"] != given and len(r.headers["x-request-id"]) <= 128)


# ---- names and paths ----

def test_several_names(start, tiny):
    s = start(tiny, name="first, second,first,a/b:c").ready()
    s.name = "first"
    ids = [m["id"] for m in s.get("/v1/models").json()["data"]]
    assert ids == ["first", "second", "a/b:c"]
    for name in ids:
        r = s.post(TEXT, body(model=name))
        assert r.status == 200 and s.get("/v1/models/" + name.replace("/", "%2F")).json()["id"] == name
    assert s.get("/v1/models/a/b:c").status == 200
    for name in ("tiny", "first, second", "", "FIRST", "first\0"):
        r = s.post(TEXT, body(model=name))
        assert r.status == 404 and r.error()["param"] == "model", r
    assert s.post(TEXT, json.dumps({"prompt": "x", "max_tokens": 1}).encode()).status == 200, "the model may be left out"


def test_any_name(start, tiny):
    s = start(tiny, name="shown,*").ready()
    s.name = "gpt-4o"
    assert s.complete()["choices"] and [m["id"] for m in s.get("/v1/models").json()["data"]] == ["shown"]
    assert s.get("/v1/models/whatever").json()["id"] == "whatever"


def test_path_of_the_model_is_its_name(start, models, tmp_path):
    """Also one that looks like a list."""
    path = tmp_path / "a,b c.gguf"
    path.symlink_to(models())
    s = start(str(path), name="").ready()
    assert [m["id"] for m in s.get("/v1/models").json()["data"]] == [str(path)]


def test_zero_byte_in_a_name(server):
    for r in (server.get("/v1/models/x%00y"), server.post(TEXT, b'{"model":"x\\u0000y","prompt":"x"}')):
        assert r.status == 404 and "`x?y` does not exist" in r.error()["message"], r


@pytest.mark.parametrize("root", ["/llm", "/a/b/"])
def test_root_path(start, tiny, root):
    """Behind a proxy that leaves its prefix in front of the paths, and for one that takes it away."""
    s = start(tiny, "--root-path", root).ready()
    prefix = root.rstrip("/")
    for path in ("", prefix):
        assert s.get(path + "/health").status == 200
        assert s.get(path + "/v1/models").json()["data"][0]["id"] == "tiny"
        assert s.get(path + "/v1/models/tiny").json()["id"] == "tiny"
        assert s.post(path + TEXT, body()).status == 200
        assert s.get(path + TEXT).status == 405
    for path in (prefix, prefix + prefix + "/health", prefix + "x/health", "/other/health"):
        assert s.get(path).status == 404, path


def test_bad_root_path(start, tiny):
    s = start(tiny, "--root-path", "llm")
    assert s.wait() == 2 and "--root-path llm: expected a path that begins with /" in s.text()


def test_load_and_ping(server):
    assert server.get("/load").json() == {"server_load": 0}
    assert server.get("/ping").status == server.post("/ping", b"").status == 200
    streams = [server.stream("n %d" % i, max_tokens=3000, ignore_eos=True) for i in range(3)]
    for st in streams:
        assert st.next()
    for _ in range(8):
        assert server.get("/load").json() == {"server_load": 3}, "whichever frontend is asked"
    for st in streams:
        st.close()
    sv.wait_for("no load", lambda: server.get("/load").json() == {"server_load": 0})


def test_half_closed_client_counts_as_gone(server):
    """conn.h says why. What is answered at once still reaches it."""
    with server.conn() as c:
        c.send(wire.request("GET", "/v1/models"))
        c.s.shutdown(socket.SHUT_WR)
        assert c.answer("GET").status == 200
    with server.conn() as c:
        c.send(wire.request("POST", TEXT, body(max_tokens=4000, ignore_eos=True)))
        sv.wait_for("it runs", lambda: server.metric("vllm:num_requests_running") == 1)
        c.s.shutdown(socket.SHUT_WR)
        sv.wait_for("it is cancelled", lambda: server.metric("vllm:num_requests_running") == 0, 3)
        assert c.at_end()


def test_ipv6(start, tiny):
    s = start(tiny, host="::1").ready()
    assert s.complete()["usage"]["completion_tokens"] > 0
    both = start(tiny, host="::").ready()
    with wire.Conn("127.0.0.1", both.port) as c:
        assert c.ask("GET", "/live").status == 200


def test_thousand_short_connections(server):
    before = [sv.fd_count(p) for p in server.kids("frontend")]
    for i in range(1000):
        c = server.conn()
        if i % 3:
            c.send(wire.request("GET", "/live"))
            if i % 3 == 2:
                assert c.answer("GET").status == 200
        c.close(reset=i % 2 == 0)
    sv.wait_for("descriptors are given back", lambda: all(sv.fd_count(p) <= n + 2 for p, n in zip(server.kids("frontend"), before)))
