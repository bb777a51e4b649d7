"""Many requests at once: clients that do not read, that go away, that ask for too much; long prompts beside streams; the
prefix cache."""
import socket
import threading
import time

import pytest

import server as sv
import wire

TEXT = "/v1/completions"
CHAT = "/v1/chat/completions"
LONG = {"max_tokens": 3900, "ignore_eos": True}
# The null device draws a token in microseconds, so what a test sees there is the mesh; these streams end when they are ended.
NULL = ("--device", "null")
ENDLESS = {"max_tokens": 900000, "ignore_eos": True}


@pytest.fixture
def endless(models):
    """A model whose context is never full."""
    return models(1000000)


def body(**kw):
    return {"model": "tiny", "prompt": "the red inn", "max_tokens": 4, "temperature": 0, **kw}


# ---- clients that do not read ----

@pytest.mark.san
def test_slow_readers_delay_nobody_and_get_all(start, endless):
    s = start(endless, *NULL).ready()
    kw = {"max_tokens": 40000 // sv.SLOW, "ignore_eos": True}
    want = s.complete("slow 0", **kw)["choices"][0]["text"]
    pid = s.kids("frontend")[0]
    before = sv.rss_mib(pid)
    alone = min(timed(lambda: s.complete("quick", max_tokens=4)) for _ in range(3))
    # Tiny receive buffers, nothing read: each answer is some MiB of SSE.
    slow = [wire.Stream(s.host, s.port, TEXT, body(prompt="slow %d" % i, stream=True, **kw), timeout=300, rcvbuf=4096) for i in range(4)]
    sv.wait_for("all four run or have run", lambda: s.metric("vllm:prompt_tokens_total") >= 4 * 6)
    beside = sorted(timed(lambda: s.complete("quick %d" % i, max_tokens=4)) for i in range(20))[10]
    assert beside < alone * 20 + 1 * sv.SLOW, "others wait for a client that does not read"
    assert sv.rss_mib(pid) < before + 40 * sv.SLOW, "output piles up"
    slow[0].conn.s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)  # else TCP itself makes it slow
    assert slow[0].finish()[0] == want, "one that reads on gets the whole stream"
    for st in slow[1:]:
        st.close()
    s.wait_idle()


def test_each_token_is_an_event_when_the_engine_is_ahead(start, endless):
    """The null worker is faster than a frontend writes, so a write takes the tokens of several steps."""
    s = start(endless, *NULL, "--num-frontends", "1").ready()
    streams = [s.stream("many %d" % i, max_tokens=300, ignore_eos=True, return_token_ids=True) for i in range(48)]
    for st in streams:
        ids = [c["token_ids"] for event in st for c in event["choices"] if c.get("token_ids")]
        assert sum(map(len, ids)) == 300
        assert max(map(len, ids)) == 1, "tokens share an event"


def timed(f):
    begin = time.monotonic()
    f()
    return time.monotonic() - begin


@pytest.mark.san
def test_unread_pipelined_answers_are_bounded(server):
    """A client that only asks: the server stops reading before its answers fill the memory."""
    before = sum(sv.rss_mib(p) for p in server.kids("frontend"))
    with server.conn(rcvbuf=4096, timeout=3) as c:
        asked, data = 0, wire.request("GET", "/metrics") * 50
        try:
            while asked < 200000:
                c.send(data)
                asked += 50
        except (TimeoutError, OSError):
            pass
        assert asked < 200000, "the server takes requests without end"
        assert sum(sv.rss_mib(p) for p in server.kids("frontend")) < before + 40 * sv.SLOW


@pytest.mark.san
def test_reader_stalled_too_long_is_cut_off(start, endless):
    s = start(endless, *NULL, "--timeout-write", "1").ready()
    st = wire.Stream(s.host, s.port, TEXT, body(stream=True, **ENDLESS), timeout=300, rcvbuf=4096)
    sv.wait_for("it runs", lambda: s.metric("vllm:num_requests_running") == 1)
    s.wait_idle(20)
    st.close()


# ---- clients that go away ----

@pytest.mark.san
@pytest.mark.parametrize("reset", [False, True], ids=["FIN", "RST"])
def test_request_ends_with_its_client(start, endless, reset):
    server = start(endless, *NULL, frontends=2).ready()
    streams = [server.stream("gone %d" % i if path == TEXT else [{"role": "user", "content": "gone %d" % i}], path, **ENDLESS)
               for i in range(3) for path in (TEXT, CHAT)]
    for st in streams:
        assert st.next()
    plain = [server.conn() for _ in range(3)]
    for i, c in enumerate(plain):
        c.send(wire.request("POST", TEXT, body(prompt="plain %d" % i, **ENDLESS)))
    sv.wait_for("all run", lambda: server.metric("vllm:num_requests_running") + server.metric("vllm:num_requests_waiting") >= 9)
    for c in [st.conn for st in streams] + plain:
        c.close(reset)
    begin = time.monotonic()
    server.wait_idle()
    assert time.monotonic() - begin < 3 * sv.SLOW
    assert server.metric("sluice:client_gone_total") >= 9


@pytest.mark.san
def test_request_in_the_queue_ends_with_its_client(start, endless):
    s = start(endless, *NULL, "--max-num-seqs", "1").ready()
    first = s.stream("one", **ENDLESS)
    assert first.next()
    waiting = [s.conn() for _ in range(4)]
    for c in waiting:
        c.send(wire.request("POST", TEXT, body(**ENDLESS)))
    sv.wait_for("they wait", lambda: s.metric("vllm:num_requests_waiting") == 4)
    for c in waiting[:3]:
        c.close()
    sv.wait_for("the three are forgotten", lambda: s.metric("vllm:num_requests_waiting") == 1)
    first.close()
    sv.wait_for("the last one runs", lambda: s.metric("vllm:num_requests_running") == 1 and s.metric("vllm:num_requests_waiting") == 0)
    waiting[3].close()
    s.wait_idle()


@pytest.mark.san
def test_request_in_prefill_ends_with_its_client(start, endless):
    s = start(endless, *NULL, "--max-num-batched-tokens", "1").ready()
    c = s.conn()
    c.send(wire.request("POST", TEXT, body(prompt=[5] * 500000)))
    sv.wait_for("it is read", lambda: s.metric("vllm:num_requests_running") == 1 and s.blocks()["used"] > 4)
    c.close()
    begin = time.monotonic()
    s.wait_idle()
    assert time.monotonic() - begin < 3 * sv.SLOW


def test_thousand_clients_vanish(start, endless):
    s = start(endless, *NULL, "--max-num-seqs", "64", frontends=2).ready()
    before = dict(zip(s.kids(""), sv.settled_fds(s.kids(""))))
    for batch in range(10):
        clients = [s.stream("vanish %d %d" % (batch, i), **ENDLESS) for i in range(100)]
        if batch % 2 == 0:  # else before anything was read, or even while requests are still coming in
            sv.wait_for("64 in decode, the others in the queue", lambda: s.metric("vllm:num_requests_running") == 64)
        for i, st in enumerate(clients):
            st.close(reset=i % 2 == 0)
    # First the connections: requests may still be coming in while nothing runs.
    sv.wait_for("descriptors are given back", lambda: all(sv.fd_count(p) <= n + 2 for p, n in before.items()), 60)
    s.wait_idle(60)
    m = s.blocks()
    assert m["used"] == 0 and m["free"] + m["cached"] == m["total"]
    assert s.complete(max_tokens=4)["usage"]["completion_tokens"] > 0


# ---- too large for the pool ----

POOL = 64 * 16


@pytest.fixture
def small_pool(start, tiny):
    """Just large enough for one request of full length: a smaller one is refused at the start."""
    return start(tiny, "--num-gpu-blocks-override", "64", "--max-model-len", str(POOL)).ready()


def test_request_larger_than_the_pool(small_pool):
    s = small_pool
    for n in (POOL, POOL + 1, 4000):
        r = s.post(TEXT, body(prompt=[5] * n, max_tokens=1))
        assert r.status == 400, r
        assert any(ch.isdigit() for ch in r.error()["message"])
    r = s.post(TEXT, body(prompt=[5] * 5000, max_tokens=1))
    assert r.status == 400 and str(POOL) in r.error()["message"]
    assert s.post(TEXT, body(prompt="the inn " * 400000)).status == 400


@pytest.mark.san
@pytest.mark.parametrize("n", [POOL - 1, POOL - 15, POOL - 16, POOL - 17, POOL - 50])
@pytest.mark.parametrize("more", [1, 2, 60])
def test_prompt_near_the_size_of_the_pool(small_pool, n, more):
    s = small_pool
    with s.conn() as c:
        c.send(wire.request("POST", TEXT, body(prompt=[5 + i % 200 for i in range(n)], max_tokens=more, ignore_eos=True)))
        short = s.complete("short", max_tokens=4, ignore_eos=True)
        assert short["usage"]["completion_tokens"] == 4, "the short one behind it is served"
        r = c.answer()
    assert r.status in (200, 400), r
    if r.status == 200:
        got = r.json()
        assert got["choices"][0]["finish_reason"] == "length" and got["usage"]["completion_tokens"] >= 1
    else:
        assert n + more > POOL, "this one fits"
    s.wait_idle()


def test_full_pool_changes_no_answer(small_pool, server):
    """More than fits at once: requests wait or are preempted, and all give what they give alone."""
    s = small_pool
    want = [server.complete("pool %d" % i, max_tokens=300, ignore_eos=True)["choices"][0]["text"] for i in range(12)]
    streams = [s.stream("pool %d" % i, max_tokens=300, ignore_eos=True) for i in range(12)]
    assert [st.finish()[0] for st in streams] == want
    s.wait_idle()
    assert s.metric("vllm:num_preemptions_total") > 0


def test_queue_full_is_503(start, endless):
    s = start(endless, *NULL, "--max-requests", "4", "--max-num-seqs", "1").ready()
    held = [s.stream("held %d" % i, **ENDLESS) for i in range(4)]
    sv.wait_for("four are held", lambda: s.metric("vllm:num_requests_running") + s.metric("vllm:num_requests_waiting") == 4)
    r = s.post(TEXT, body())
    assert r.status == 503 and int(r.headers["retry-after"]) >= 1, r
    r.error()
    for st in held:
        st.close()
    s.wait_idle()
    assert s.post(TEXT, body()).status == 200


# ---- long prompts beside streams ----

def test_long_prompt_does_not_stop_a_stream(start, models):
    s = start(models(4096, 4, 128), "--max-num-batched-tokens", "64").ready()
    at, stop = [], threading.Event()

    def stream():
        st = s.stream("stream", **LONG)
        for _ in st:
            at.append(time.monotonic())
            if stop.is_set():
                break
        st.close()
    t = threading.Thread(target=stream)
    t.start()
    sv.wait_for("it streams", lambda: len(at) > 5)
    begin = time.monotonic()
    s.complete([5 + i % 200 for i in range(3000)], max_tokens=1)
    end = time.monotonic()
    stop.set()
    t.join()
    during = [a for a in at if begin <= a <= end]
    assert len(during) >= 3000 // 64 // 2, "a token in nearly every step"
    gap = max(b - a for a, b in zip([begin, *during], [*during, end]))
    assert gap < (end - begin) / 2, "largest gap %.2f s of a prefill of %.2f s" % (gap, end - begin)
    s.wait_idle()


def test_short_requests_start_beside_a_long_prompt(start, models):
    s = start(models(4096, 4, 128), "--max-num-batched-tokens", "128", "--long-prefill-token-threshold", "32").ready()
    order = []
    t = threading.Thread(target=lambda: (s.complete([7 + i % 200 for i in range(4000)], max_tokens=1), order.append("long")))
    t.start()
    sv.wait_for("it is read", lambda: s.metric("vllm:num_requests_running") == 1)
    for i in range(3):
        s.complete("short %d" % i, max_tokens=1)
        order.append("short")
    t.join()
    assert order == ["short"] * 3 + ["long"], "the short ones waited for the long prompt"


# ---- prefix cache ----

@pytest.mark.san
def test_prefix_cache_changes_no_answer(server, start, tiny):
    cold = start(tiny, "--no-enable-prefix-caching").ready()
    base = [5 + (i * 7) % 200 for i in range(200)]
    want, kw = {}, {"max_tokens": 24, "ignore_eos": True, "return_token_ids": True}

    def ask(s, p, **more):
        c = s.complete(p, **{**kw, **more})
        return c["choices"][0]["token_ids"], c["usage"]["prompt_tokens_details"]["cached_tokens"]

    lengths = (15, 16, 17, 31, 32, 33, 64, 80, 81, 160, 161)
    for n in lengths:
        want[n], cached = ask(cold, base[:n])
        assert cached == 0
    for _ in range(3):
        for n in lengths:
            got, cached = ask(server, base[:n])
            assert got == want[n], n
            assert cached < n, "at least one token is always computed"
    # One that is cut off by its client, one that ends by a stop string, one that goes on from it.
    st = server.stream(base[:80], **LONG)
    st.next()
    st.close()
    server.wait_idle()
    ask(server, base[:80], stop=chr(97), max_tokens=50)
    for n in (64, 80, 81, 160):
        got, cached = ask(server, base[:n])
        assert got == want[n] and cached > 0
    longer = base[:64] + want[64][:20]
    assert ask(server, longer)[0] == ask(cold, longer)[0]


def test_salts_share_nothing(server):
    p = [9 + (i * 11) % 200 for i in range(64)]
    cached = lambda **kw: server.complete(p, **kw)["usage"]["prompt_tokens_details"]["cached_tokens"]
    cached(cache_salt="a")
    assert cached(cache_salt="b") == 0
    assert cached(cache_salt="a") > 0
    assert cached() == 0
    assert cached() > 0


@pytest.mark.san
def test_batches_change_no_answer(server, start, tiny):
    """64 streams with random neighbours, and each alone."""
    alone = start(tiny, "--max-num-seqs", "1", "--no-enable-prefix-caching", "--threads", "1").ready()
    kw = {"max_tokens": 40, "ignore_eos": True, "temperature": 0.8, "return_token_ids": True}
    streams = [server.stream("batch %d " % i * (1 + i % 7), seed=i, **kw) for i in range(64)]
    got = [st.finish()[1] for st in streams]
    for i in range(0, 64, 5):
        assert alone.complete("batch %d " % i * (1 + i % 7), seed=i, **kw)["choices"][0]["token_ids"] == got[i]
