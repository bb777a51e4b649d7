"""The end of a server that is in use: load balancers are told first, then nothing new is taken, and what still runs when its time is
over ends with an error, never as if it were whole. The rest of an end is in test_supervisor.py."""
import json
import signal
import threading
import time

import pytest

import server as sv
import wire

TEXT = {"model": "tiny", "prompt": "long", "max_tokens": 900000, "ignore_eos": True}
CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "long"}], "max_tokens": 900000, "ignore_eos": True}
SHORT = {"model": "tiny", "prompt": "x", "max_tokens": 1}


@pytest.fixture(scope="module")
def endless(models):
    return models(1000000)


def leave(s):
    s.p.send_signal(signal.SIGTERM)
    sv.wait_for("it leaves", lambda: s.lines("/ready says 503"))


def drain(s):
    s.p.send_signal(signal.SIGTERM)
    sv.wait_for("it drains", lambda: s.lines("stopping"))


def test_load_balancers_are_told_before_anything_is_refused(start, tiny):
    s = start(tiny, "--drain-delay", "3", frontends=2).ready()
    with s.conn() as kept:
        assert kept.ask("POST", "/v1/completions", SHORT).status == 200
        leave(s)
        begin = time.monotonic()
        while time.monotonic() - begin < 1:
            r = s.get("/ready")
            assert (r.status, r.json()["phase"]) == (503, "draining")
            assert s.get("/live").status == 200
            assert s.complete(max_tokens=2)["choices"], "a new connection is served"
            r = kept.ask("POST", "/v1/completions", SHORT)
            assert r.status == 200 and not r.closes(), "and a kept one is, and stays"
            time.sleep(0.05)
        assert not s.lines("stopping")
        s.kill("frontend")
        sv.wait_for("it is replaced", lambda: len(s.kids("frontend")) == 2)
        s.kill("executor")
        assert s.complete(max_tokens=2)["choices"], "the engine is started again as ever"
        assert s.wait() == 0
    assert len(s.lines("stopping")) == 1
    s.expect_nothing_left()


def test_second_signal_in_the_delay(start, tiny):
    s = start(tiny, "--drain-delay", "600").ready()
    leave(s)
    begin = time.monotonic()
    s.p.send_signal(signal.SIGTERM)
    assert s.wait() == 0 and time.monotonic() - begin < 5 * sv.SLOW
    s.expect_nothing_left()


def test_who_comes_too_late_is_told(start, endless):
    """On new connections too, for as long as something runs: a proxy goes to the next server at once."""
    s = start(endless, "--device", "null", frontends=2).ready()
    streams = [s.stream("long", max_tokens=900000, ignore_eos=True) for _ in range(8)]
    for st in streams:
        assert st.next()
    drain(s)
    for path, body in (("/v1/completions", SHORT), ("/v1/chat/completions", {**CHAT, "max_tokens": 1}), ("/v1/embeddings", {"model": "tiny", "input": "x"}),
                       ("/v1/messages", {**CHAT, "max_tokens": 1})):
        r = s.post(path, body, timeout=10)
        assert r.status == 503 and r.closes() and int(r.headers["retry-after"]) >= 1 and "shutting down" in r.text(), r
    assert s.get("/ready").status == 503
    silent = s.conn()  # somebody who connects and says nothing holds up nobody
    for st in streams:
        st.conn.close()
    assert s.wait() == 0
    silent.close()


def last_event(raw):
    blocks = [b for b in raw.decode().split("\n\n") if b and not b.startswith(":")]
    return blocks[-2:], blocks[-1]


def rest_of(s, path, body, out):
    """A whole answer in a thread: (status, bytes)."""
    with s.conn(timeout=60) as c:
        r = c.ask("POST", path, body)
        out[path, body.get("stream", False)] = r


def test_what_is_cut_off_says_so(start, endless):
    s = start(endless, "--device", "null", "--drain-timeout", "0.5", frontends=2).ready()
    asked = [("/v1/completions", TEXT), ("/v1/chat/completions", CHAT), ("/v1/messages", CHAT),
             ("/v1/responses", {"model": "tiny", "input": "long", "max_output_tokens": 900000, "ignore_eos": True})]
    got, threads = {}, []
    for path, body in asked:
        for stream in (True, False):
            threads.append(threading.Thread(target=rest_of, args=(s, path, {**body, "stream": stream}, got)))
            threads[-1].start()
    sv.wait_for("all run", lambda: s.metric("sluice:live_requests") == len(threads))
    time.sleep(0.2)
    s.p.send_signal(signal.SIGTERM)
    for t in threads:
        t.join(60)
    assert s.wait() == 0
    assert len(got) == len(threads)
    for (path, stream), r in got.items():
        if not stream:
            assert r.status == 503 and r.closes(), (path, r)
            assert "--drain-timeout" in r.json()["error"]["message"] and int(r.headers["retry-after"]) >= 1, r
            continue
        assert r.status == 200, (path, r)  # its end was framed: wire.py would have said
        blocks, last = last_event(r.body)
        data = json.loads(next(l[6:] for l in blocks[-1 if last != "data: [DONE]" else -2].splitlines() if l.startswith("data: ")))
        text = json.dumps(data)
        assert "--drain-timeout" in text and "error" in text, (path, blocks)
        assert '"finish_reason": "length"' not in text and '"finish_reason": "stop"' not in text, (path, blocks)
    s.expect_quiet_log()
    s.expect_nothing_left()


@pytest.mark.parametrize("value", ["-1", "x", "3601"])
def test_bad_delays(value, tiny):
    import subprocess
    r = subprocess.run([sv.SLUICE, "serve", tiny, "--drain-delay", value], capture_output=True, text=True, timeout=20)
    assert r.returncode == 2 and "--drain-delay" in r.stderr
