"""An engine that does not stay alive: after --max-restarts deaths in a row its streams end with an error, requests are refused at the
door, and the server ends with an exit code that has it started anew."""
import signal
import time

import server as sv

WHY = "The engine has failed: %s died 3 times without serving 30 s in between"


def kill_three_times(s, kind):
    for _ in range(3):
        pid = s.kill(kind)
        sv.wait_for("it is replaced, or never again", lambda: [p for p in s.kids(kind) if p != pid] or s.lines("The engine has failed"), pause=0.02)


def test_a_clear_end(start, models):
    s = start(models(1000000), "--max-restarts", "3", frontends=2).ready()
    why = WHY % "worker 0"
    streams = [s.stream("long", max_tokens=900000, ignore_eos=True) for _ in range(4)]
    for w in streams:
        w.next()
    kill_three_times(s, "worker")
    for w in streams:
        while w.next():
            pass
        assert why in w.events[-1]["error"]["message"], w.events[-1]
        w.close()
    begin = time.monotonic()
    r = s.post("/v1/completions", {"model": "tiny", "prompt": "x", "max_tokens": 1})
    assert r.status == 503 and why in r.error()["message"] and int(r.headers["retry-after"]) > 0, r
    for path in ("/health", "/ready", "/live"):
        r = s.get(path)
        assert r.status == 503 and why in r.text(), (path, r)
    assert s.wait(10) == 1
    assert time.monotonic() - begin > 3, "probes had time to see it"
    assert s.lines("ERROR", why, "--max-restarts"), s.text()
    s.expect_nothing_left()


def test_a_frontend_may_die_any_number_of_times(start, tiny):
    s = start(tiny, "--max-restarts", "1").ready()
    for i in range(3):
        pid = s.kill("frontend")
        sv.wait_for("it is replaced", lambda: [p for p in s.kids("frontend") if p != pid])
    s.ready()
    assert s.complete()["choices"]


def test_the_end_at_once(start, tiny):
    """A signal while the server says that its engine has failed ends it; the exit code stays."""
    s = start(tiny, "--max-restarts", "1").ready()
    s.kill("executor")
    sv.wait_for("the engine has failed", lambda: s.lines("The engine has failed"))
    s.p.send_signal(signal.SIGTERM)
    assert s.wait(3) == 1
    s.expect_nothing_left()
