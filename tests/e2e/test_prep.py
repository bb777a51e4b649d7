"""Large requests: they are prepared beside the loop, whose other clients notice nothing; and all ends well when their client, or the
server, goes away meanwhile."""
import json
import random
import signal
import socket
import threading
import time

import pytest

import server as sv
import wire

TEXT = "/v1/completions"
CHAT = "/v1/chat/completions"


def words(n, seed=1):
    r = random.Random(seed)
    some = ["the", "inn", "caf\u00e9", "1234", "na\u00efve", "\u9f9c", "red", "_x_", "don't", "  ", "\n"]
    out, size = [], 0
    while size < n:
        out.append(r.choice(some))
        size += len(out[-1].encode()) + 1
    return " ".join(out)


def bodies(model):
    user = lambda text: [{"role": "user", "content": text}]
    mib = words(1 << 20)
    letters = "".join(random.Random(2).choices("abcdefghijklmnopqrstuvwxyz", k=1000000))
    pairs = {"k%d" % i: ["some text", str(i)] for i in range(240000)}
    yield "1 MB prompt", TEXT, {"prompt": mib}
    yield "1 MB prompt, cut", TEXT, {"prompt": mib, "truncate_prompt_tokens": 8, "max_tokens": 1}
    yield "1 MB message", CHAT, {"messages": user(mib)}
    yield "1 MB in 10,000 messages", CHAT, {"messages": user(mib[:100]) * 10000}
    yield "word of a million characters", "/tokenize", {"prompt": letters}
    yield "word of a million characters, cut", TEXT, {"prompt": letters, "truncate_prompt_tokens": 8, "max_tokens": 1}
    yield "1 MB to tokenize", "/tokenize", {"messages": user(mib)}
    yield "1 MB to render", CHAT + "/render", {"messages": user(mib)}
    yield "10 MB of JSON", TEXT, {"prompt": "the inn", "max_tokens": 1, "unknown": pairs}
    yield "10 MB of ids", TEXT, {"prompt": [123456 % 500] * 900000}
    yield "10 MB of text as a model's name", TEXT, {"prompt": "x", "model": "m" * 10000000}
    yield "1 MB to embed", "/v1/embeddings", {"input": [mib[:500]] * 200, "truncate_prompt_tokens": 4}


def late_passes(s, seconds):
    """Passes of the loop that took longer."""
    m = s.metrics()
    key = next(k for k in m if k.startswith("sluice:loop_pass_seconds_bucket") and 'le="%s"' % seconds in k)
    return m[next(k for k in m if k.startswith("sluice:loop_pass_seconds_count"))] - m[key]


@pytest.mark.real
def test_the_loop_is_never_held(start):
    """For more than 5 ms of its own time: not by parsing, templates or tokenizing, nor by freeing what was read. Interrupts of a busy
    machine are counted to whoever runs, so what happens once of three times is not ours."""
    s = start(sv.REAL_MODEL, "--kv-cache-memory-bytes", "256M", name="smollm2").ready()
    s.complete(max_tokens=1)
    bound, done, waits = "0.05" if sv.IS_SAN else "0.005", threading.Event(), []

    def look():
        with s.conn(timeout=600) as c:
            while not done.is_set():
                begin = time.monotonic()
                assert c.ask("GET", "/live").status == 200
                waits.append(time.monotonic() - begin)
                time.sleep(0.002)

    def late(path, raw):
        before = late_passes(s, bound)
        r = s.post(path, raw)
        assert r.status in (200, 400, 404), r
        time.sleep(0.05)
        return late_passes(s, bound) - before

    t = threading.Thread(target=look)
    t.start()
    try:
        for name, path, body in bodies("smollm2"):
            raw = json.dumps({"model": "smollm2", **body}).encode()
            assert any(late(path, raw) == 0 for _ in range(3)), name
    finally:
        done.set()
        t.join()
    assert len(waits) > 20 and sorted(waits)[len(waits) // 2] < 0.05 * sv.SLOW


def test_large_and_small_are_the_same(server):
    """Where a request is prepared changes nothing: padding makes it large."""
    pad = {"unknown": "x" * 40000}
    for path, kw in ((TEXT, {"prompt": "the red inn"}), (CHAT, {"messages": [{"role": "user", "content": "the red inn"}]})):
        body = {"model": "tiny", "max_tokens": 6, "temperature": 0, **kw}
        small, large = server.post(path, body).json(), server.post(path, {**body, **pad}).json()
        assert small["choices"] == large["choices"] and small["usage"]["total_tokens"] == large["usage"]["total_tokens"]
        for bad in ({"temperature": -1}, {"n": 0}, {"stop": ""}):
            a, b = server.post(path, {**body, **bad}), server.post(path, {**body, **bad, **pad})
            assert a.status == b.status == 400 and a.error() == b.error()
        s = wire.Stream(server.host, server.port, path, {**body, **pad, "stream": True}, 60)
        assert s.finish()[0] == (small["choices"][0].get("text") or small["choices"][0]["message"]["content"])


def test_pipelined_behind_a_large_one(server):
    """Answers keep their order, and a body that is with a thread is not needed by its connection."""
    big = json.dumps({"model": "tiny", "prompt": "a" * 100000}).encode()
    small = json.dumps({"model": "tiny", "prompt": "b"}).encode()
    with server.conn() as c:
        c.send(b"".join(wire.request("POST", "/tokenize", b) for b in (big, small, big)))
        counts = [c.answer().json()["count"] for _ in range(3)]
    assert counts == [100000, 1, 100000]


def test_clients_that_leave_meanwhile(server):
    raw = json.dumps({"model": "tiny", "prompt": words(3 << 20)}).encode()
    for how in range(3):
        for _ in range(8):
            c = socket.create_connection((server.host, server.port))
            c.sendall(wire.request("POST", ("/tokenize", TEXT, CHAT + "/render")[how], raw))
            if how == 1:
                c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            c.close()
    assert server.complete()["choices"]
    server.wait_idle()


def test_too_many_at_once_are_told_so(start, tiny):
    """The bodies that wait have a bound together."""
    s = start(tiny, "--max-body-bytes", "64M").ready()
    raw = json.dumps({"model": "tiny", "prompt": "x", "pad": "y" * (60 << 20)}).encode()
    seen, conns = [], [s.conn(timeout=120) for _ in range(6)]

    def ask(c):
        """One that is refused may be so before it has sent everything."""
        c.try_send(wire.request("POST", "/tokenize", raw))
        seen.append(c.answer().status)

    threads = [threading.Thread(target=ask, args=(c,)) for c in conns]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for c in conns:
        c.close()
    assert len(seen) == 6 and set(seen) <= {200, 503} and 200 in seen
    assert s.complete()["choices"]


def test_drain_meanwhile(start, tiny):
    """What was accepted is answered; then the frontend goes."""
    s = start(tiny).ready()
    raw = json.dumps({"model": "tiny", "prompt": words(4 << 20)}).encode()
    c = s.conn(timeout=60)
    c.send(wire.request("POST", "/tokenize", raw))
    time.sleep(0.05)
    s.p.send_signal(signal.SIGTERM)
    assert c.answer().status in (200, 503)
    c.close()
    assert s.wait() == 0


def test_end_meanwhile(start, tiny):
    """A second signal ends at once, whatever the threads do."""
    s = start(tiny).ready()
    raw = json.dumps({"model": "tiny", "prompt": words(4 << 20)}).encode()
    conns = [s.conn(timeout=60) for _ in range(6)]
    for c in conns:
        c.send(wire.request("POST", "/tokenize", raw))
    time.sleep(0.05)
    s.p.send_signal(signal.SIGTERM)
    sv.wait_for("the first signal", lambda: s.lines("a second signal ends at once"))
    s.p.send_signal(signal.SIGTERM)
    s.wait()
    for c in conns:
        c.close()
    s.expect_nothing_left()
