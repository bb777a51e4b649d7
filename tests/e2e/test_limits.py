"""What the mesh takes on: limits that no storm passes, whichever frontend a client has and whichever dies; refusals that say when to come
back; deadlines. The device is null: it computes nothing, and a step takes as long as it is told."""
import json
import os
import signal
import threading
import time

import openai
import pytest

import server as sv
import wire

SHORT = {"model": "tiny", "prompt": "x", "max_tokens": 3, "ignore_eos": True}
LONG = {"model": "tiny", "prompt": "x", "max_tokens": 3900, "ignore_eos": True}  # at 5 ms a step: longer than any test here
FAIR = "X-Gateway-Inference-Fairness-Id: "


@pytest.fixture
def serve(start, tiny):
    def make(*flags, step_us=5000, **kw):
        return start(tiny, "--device", "null", "--null-step-us", str(step_us), *flags, **kw).ready()
    return make


@pytest.fixture
def hold():
    """hold(server, count, *headers, **body): streams that have begun and go on."""
    held = []

    def make(s, count, *headers, **body):
        for _ in range(count):
            c = s.conn()
            held.append(c)
            c.send(wire.request("POST", "/v1/completions", {**LONG, "stream": True, **body}, headers))
            status, head, _ = c.head()
            assert status == 200, (status, head)
        return held[-count:]
    yield make
    for c in held:
        c.close()


def expect_refusal(r, status, kind, text):
    assert r.status == status and r.error()["type"] == kind and text in r.error()["message"], r
    assert r.error()["code"] == status
    assert int(r.headers["retry-after"]) >= 1 and 1 <= int(r.headers["retry-after-ms"]) <= 1000 * int(r.headers["retry-after"])


def admitted(s):
    m = s.metrics()
    pick = lambda name: sum(v for k, v in m.items() if k.split("{")[0] == name)
    return pick("sluice:admitted_requests"), pick("sluice:admitted_tokens")


def expect_nothing_held(s):
    sv.wait_for("all is given back", lambda: admitted(s) == (0, 0))


# ---- storms ----

class Storm:
    """Clients that ask again at once, whatever they are told, and one that watches the gauges."""

    def __init__(self, s, n_clients, running, waiting):
        self.s, self.running, self.waiting = s, running, waiting
        self.over = threading.Event()
        self.statuses, self.faults, self.highest, self.n_lost = {}, [], [0, 0, 0], 0
        self.threads = [threading.Thread(target=self.guard, args=(f,)) for f in [self.watch] + [self.client] * n_clients]

    def guard(self, work):
        try:
            work()
        except Exception as e:  # noqa: BLE001 - shown by the test
            self.faults.append(repr(e))

    def client(self):
        c = None
        while not self.over.is_set():
            try:
                c = c or self.s.conn()
                r = c.ask("POST", "/v1/completions", {**SHORT, "n": 1 + len(self.statuses) % 2})
            except (wire.Gone, OSError):
                self.n_lost += 1  # its frontend was killed
                c = None
                time.sleep(0.01)
                continue
            self.statuses[r.status] = self.statuses.get(r.status, 0) + 1
            if r.status == 503:
                expect_refusal(r, 503, "ServiceUnavailableError", "The server is overloaded")
                assert not r.closes(), "a refusal leaves the connection as it is"
                time.sleep(0.003)
        if c:
            c.close()

    def watch(self):
        while not self.over.is_set():
            try:
                m = self.s.metrics()
            except (wire.Gone, OSError):
                continue
            for i, name in enumerate(("sluice:admitted_requests", "vllm:num_requests_running", "vllm:num_requests_waiting")):
                self.highest[i] = max(self.highest[i], sum(v for k, v in m.items() if k.split("{")[0] == name))
            time.sleep(0.002)

    def __enter__(self):
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *rest):
        self.over.set()
        for t in self.threads:
            t.join()

    def check(self):
        assert not self.faults, self.faults[:3]
        assert set(self.statuses) == {200, 503}, self.statuses
        assert self.highest[0] == self.running + self.waiting, "it is reached, and not passed: %s" % self.highest
        assert self.highest[1] <= self.running and self.highest[2] <= self.running + self.waiting, self.highest


@pytest.mark.parametrize("frontends,deaths", [(1, 0), (4, 0), (4, 4), (8, 2)])
def test_a_storm_never_passes_the_limit(serve, hold, frontends, deaths):
    running, waiting = 4, 3
    s = serve("--max-num-seqs", str(running), "--max-queued-requests", str(waiting), frontends=frontends)
    with Storm(s, 20, running, waiting) as storm:
        for _ in range(deaths):
            time.sleep(0.3)
            s.kill("frontend", n=frontends // 2)
        time.sleep(1.5)
    if deaths:
        sv.wait_for("all frontends", lambda: len(s.kids("frontend")) == frontends)
    storm.check()
    s.wait_idle()
    expect_nothing_held(s)
    # All of it can be had, and no more.
    hold(s, running + waiting)
    for _ in range(2 * frontends):
        expect_refusal(s.post("/v1/completions", SHORT), 503, "ServiceUnavailableError", "7 requests run or wait, which is its limit")
    assert admitted(s)[0] == running + waiting
    if deaths:
        os.kill(s.kids("frontend")[0], signal.SIGKILL)
        sv.wait_for("what it held can be had again, if it held any", lambda: admitted(s)[0] <= running + waiting)
    assert s.metric("sluice:rejected_total", reason="queue") > 0


def test_choices_and_tokens_count(serve, hold):
    s = serve("--max-requests", "5", "--max-inflight-tokens", "8000", frontends=2)
    hold(s, 1, n=2, max_tokens=1000)
    assert admitted(s) == (2, 2 * 1001)
    expect_refusal(s.post("/v1/completions", {**SHORT, "n": 4}), 503, "ServiceUnavailableError", "it holds 5 requests, which is its limit (--max-requests)")
    r = s.post("/v1/completions", {**SHORT, "n": 6})
    assert r.status == 400 and "asks for 6 answers" in r.error()["message"]
    r = s.post("/v1/completions", {**SHORT, "n": 3, "max_tokens": 3000})
    assert r.status == 400 and "9003 tokens" in r.error()["message"] and "--max-inflight-tokens" in r.error()["message"]
    expect_refusal(s.post("/v1/completions", {**SHORT, "n": 2, "max_tokens": 3000}), 503, "ServiceUnavailableError", "--max-inflight-tokens 8000")
    assert s.post("/v1/completions", {**SHORT, "n": 3}).status == 200
    assert s.post("/v1/embeddings", {"model": "tiny", "input": ["a", "b", "c"]}).status == 200
    expect_refusal(s.post("/v1/embeddings", {"model": "tiny", "input": ["a", "b", "c", "d"]}), 503, "ServiceUnavailableError", "--max-requests")
    assert admitted(s) == (2, 2 * 1001)
    assert s.metric("sluice:rejected_total", reason="requests") == 2 and s.metric("sluice:rejected_total", reason="tokens") == 1


def test_a_large_body_is_refused_before_it_comes(serve, hold):
    s = serve("--max-requests", "1")
    c, = hold(s, 1)
    with s.conn() as other:
        other.send(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
        r = other.answer()
        expect_refusal(r, 503, "ServiceUnavailableError", "--max-requests")
        assert r.closes()
    # Who sends nothing holds nothing.
    c.close()
    expect_nothing_held(s)
    with s.conn() as slow:
        slow.send(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
        assert s.post("/v1/completions", SHORT).status == 200


# ---- tenants ----

def test_tenants_have_limits_of_their_own(serve, hold):
    s = serve("--tenant-max-requests", "2", "--tenant-max-tokens", "7900", frontends=2)
    a = hold(s, 2, FAIR + "a", max_tokens=3900)
    for path, body in (("/v1/completions", SHORT), ("/v1/embeddings", {"model": "tiny", "input": "a"})):
        expect_refusal(s.post(path, body, headers=[FAIR + "a"]), 429, "rate_limit_error", "--tenant-max-requests")
    r = s.post("/v1/messages", {"model": "tiny", "max_tokens": 3, "messages": [{"role": "user", "content": "x"}]}, headers=[FAIR + "a"])
    assert r.status == 429 and r.json()["error"]["type"] == "rate_limit_error" and "retry-after-ms" in r.headers
    assert s.post("/v1/completions", SHORT, headers=[FAIR + "b"]).status == 200
    assert s.post("/v1/completions", SHORT).status == 200, "nobody in particular has an account, too"
    a[0].close()
    sv.wait_for("one is given back", lambda: admitted(s)[0] == 1)
    assert s.post("/v1/completions", SHORT, headers=[FAIR + "a"]).status == 200
    expect_refusal(s.post("/v1/completions", {**SHORT, "max_tokens": 4000}, headers=[FAIR + "a"]), 429, "rate_limit_error", "--tenant-max-tokens")
    assert s.metric("sluice:rejected_total", reason="tenant_requests") == 3 and s.metric("sluice:rejected_total", reason="tenant_tokens") == 1


def test_keys_are_tenants(serve, hold):
    s = serve("--tenant-max-requests", "1", "--api-key", "one,two", key="one")
    hold(s, 1, "Authorization: Bearer one")
    expect_refusal(s.post("/v1/completions", SHORT), 429, "rate_limit_error", "--tenant-max-requests")
    with s.conn(headers=["Authorization: Bearer two"]) as c:
        assert c.ask("POST", "/v1/completions", SHORT).status == 200
    with s.conn(headers=["Authorization: Bearer three", FAIR + "x"]) as c:
        assert c.ask("POST", "/v1/completions", SHORT).status == 401


def test_openais_client_waits_as_it_is_told(serve, hold):
    s = serve("--tenant-max-requests", "1", "--max-requests", "2")
    ask = dict(model="tiny", prompt="x", max_tokens=2)
    a, = hold(s, 1, FAIR + "a")
    client = openai.OpenAI(base_url=s.url + "/v1", api_key="none", max_retries=0, default_headers={"x-gateway-inference-fairness-id": "a"})
    with pytest.raises(openai.RateLimitError) as e:
        client.completions.create(**ask)
    assert e.value.status_code == 429 and e.value.type == "rate_limit_error"
    b, = hold(s, 1, FAIR + "b")
    with pytest.raises(openai.InternalServerError) as e:
        client.with_options(default_headers={"x-gateway-inference-fairness-id": "c"}).completions.create(**ask)
    assert e.value.status_code == 503 and "--max-requests" in str(e.value)
    timer = threading.Timer(0.2, a.close)
    timer.start()
    assert client.with_options(max_retries=5).completions.create(**ask).choices[0].text
    timer.join()
    b.close()


def test_random_tenants_do_not_take_the_table(serve):
    s = serve("--tenant-max-requests", "2", "--max-tenants", "8", frontends=2, step_us=100)
    with s.conn() as c:
        for i in range(60):
            assert c.ask("POST", "/v1/completions", SHORT, [FAIR + "random-%d" % i]).status == 200
    assert s.metric("sluice:tenants_shared_total") > 0
    assert len(s.lines("more than 8 tenants")) in (1, 2), "once a frontend"

    def has_room():
        before = s.metric("sluice:tenants_shared_total")
        assert s.post("/v1/completions", SHORT, headers=[FAIR + "later"]).status == 200
        return s.metric("sluice:tenants_shared_total") == before
    sv.wait_for("the idle ones have been forgotten", has_room)


# ---- deadlines ----

def test_request_timeouts(serve):
    s = serve("--request-timeout", "2", frontends=2)
    r = s.post("/v1/completions", LONG, headers=["X-Request-Timeout: 0.3"])
    assert r.status == 504 and r.error()["type"] == "timeout_error" and "within 0.3 s" in r.error()["message"], r
    s.wait_idle()
    assert s.post("/v1/completions", SHORT, headers=["X-Request-Timeout: 0.3"]).status == 200
    for bad in ("0", "-1", "soon", "1e3", "inf"):
        r = s.post("/v1/completions", SHORT, headers=["X-Request-Timeout: " + bad])
        assert r.status == 400 and "x-request-timeout" in r.error()["message"], bad
    chat = {"model": "tiny", "messages": [{"role": "user", "content": "x"}], "max_tokens": 3900, "ignore_eos": True, "stream": True}
    for path, body in (("/v1/completions", {**LONG, "stream": True}), ("/v1/chat/completions", chat), ("/v1/messages", chat)):
        with s.conn() as c:
            begin = time.monotonic()
            c.send(wire.request("POST", path, body, ["X-Request-Timeout: 99"] if path == "/v1/messages" else ["X-Request-Timeout: 0.5"]))
            r = c.answer()
        text = r.text()
        assert r.status == 200 and "timeout_error" in text and "was not answered within %s s" % ("2" if path == "/v1/messages" else "0.5") in text, r
        events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
        assert len(events) > 5 and "error" in events[-1] and time.monotonic() - begin >= 0.5
    s.wait_idle()
    expect_nothing_held(s)
    assert s.metric("sluice:request_timeouts_total") == 4


def test_waiting_for_too_long(serve, hold):
    s = serve("--max-num-seqs", "1", "--queue-timeout", "0.5")
    hold(s, 1)
    expect_refusal(s.post("/v1/completions", SHORT), 503, "ServiceUnavailableError", "has waited for 0.5")
    for stream in (False, True):
        expect_refusal(s.post("/v1/completions", {**SHORT, "stream": stream}, headers=["x-slo-ttft-ms: 150"]), 503, "ServiceUnavailableError", "within 150 ms (x-slo-ttft-ms)")
    assert admitted(s)[0] == 1
    assert s.metric("sluice:rejected_total", reason="queue_timeout") == 1 and s.metric("sluice:rejected_total", reason="ttft") == 2


def test_a_first_token_that_cannot_come_in_time_is_not_waited_for(serve):
    s = serve("--max-num-seqs", "1", step_us=20000)
    first = [threading.Thread(target=s.post, args=("/v1/completions", {**SHORT, "max_tokens": 20})) for _ in range(6)]
    for t in first:
        t.start()

    def is_hopeless():
        r = s.post("/v1/completions", b"{", headers=["x-slo-ttft-ms: 1"])
        return r.status == 503 and "is not to be expected" in r.error()["message"]
    sv.wait_for("others have waited, and some still do", is_hopeless, pause=0.05)
    for t in first:
        t.join()
    assert s.post("/v1/completions", SHORT, headers=["x-slo-ttft-ms: 5000"]).status == 200
