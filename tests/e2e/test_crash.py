"""A process of the mesh is killed while streams run: they go on, token for token, unless their own frontend died."""
import os
import signal
import time

import pytest

import crash
import memgroup
import server as sv

pytestmark = pytest.mark.san
STREAMS = 16
TOKENS = {"max_tokens": 400 // sv.SLOW, "ignore_eos": True}


@pytest.fixture(scope="module")
def mesh(models):
    with sv.Server(models(2048, 4, 128), frontends=2) as s:
        s.ready()
        s.want = crash.undisturbed(s, crash.prompts_of(STREAMS), **TOKENS)
        s.wait_idle()
        s.watch = crash.Watch(s)
        yield s


def test_a_small_crash_matrix(models):
    """Each process lost in each way, in a phase of its own; `make check-long` has all of them with the default model."""
    rng, group = crash.seeded(), memgroup.Group() if os.geteuid() == 0 and memgroup.parent() else None
    matrix = crash.Matrix(48, 40, 30, 80 // sv.SLOW)
    ways = ["kill", "stop"] + ["oom"] * (group is not None and not sv.IS_SAN)  # a sanitizer's shadow is out of memory before the rest
    phases = ["queue", "prefill", "decode", "sampling"]
    s = sv.Server(models(2048, 4, 128), *matrix.flags(), frontends=2, wrap=group.wrap if group else ())
    try:
        with s:
            s.ready()
            matrix.undisturbed(s)
            watch = crash.Watch(s)
            for n, (kind, way) in enumerate((k, w) for k in crash.KINDS for w in ways):
                for _ in range(10):
                    if matrix.round(s, phases[n % 4], kind, way, rng, group, watch):
                        break
            matrix.round(s, "drain", rng.choice(crash.KINDS), "kill", rng)
        assert len(matrix.rounds) >= 3 * len(ways), "moments were missed"
    finally:
        print(matrix.table())
        if group:
            group.close()


def test_worker_and_executor_at_once(mesh):
    clients = [crash.Client(mesh, p, **TOKENS) for p in crash.prompts_of(STREAMS)]
    sv.wait_for("all stream", lambda: all(c.n_events > 3 for c in clients))
    mesh.kill("worker")
    mesh.kill("executor")
    for c in clients:
        c.join(300)
        assert c.error is None and c.result == mesh.want[c.prompt], (c.error, mesh.text()[-2000:])
    mesh.ready()
    mesh.wait_idle(30)


def test_sampled_streams_go_on_too(mesh):
    """The seed and the position decide, also over a replay, and when the client gave no seed."""
    kw = {"temperature": 1.0, "max_tokens": 200, "ignore_eos": True, "seed": 5}
    want = mesh.complete("sampled", return_token_ids=True, **kw)["choices"][0]["token_ids"]
    for kind in ("worker", "executor"):
        c = crash.Client(mesh, "sampled", **kw)
        sv.wait_for("it streams", lambda: c.n_events > 20 or not c.is_alive())
        mesh.kill(kind)
        c.join(120)
        assert c.error is None and c.result[1] == want
        mesh.ready()


def test_stop_strings_and_limits_hold_over_a_crash(mesh):
    whole = mesh.complete("stops", max_tokens=300, ignore_eos=True)["choices"][0]["text"]
    stop = whole[200:206]
    want = whole[:whole.index(stop)]
    c = crash.Client(mesh, "stops", max_tokens=300, ignore_eos=True, stop=stop)
    sv.wait_for("it streams", lambda: c.n_events > 20 or not c.is_alive())
    mesh.kill("executor")
    c.join(120)
    assert c.error is None and (c.result[0], c.result[2]) == (want, "stop")
    mesh.ready()


def test_requests_while_the_engine_is_away(mesh):
    """New ones wait or are refused with 503; none fails otherwise, none hangs."""
    mesh.ready()
    for kind in ("worker", "executor"):
        mesh.kill(kind)
        seen = set()
        until = time.monotonic() + 1.0 * sv.SLOW
        while time.monotonic() < until:
            r = mesh.post("/v1/completions", {"model": "tiny", "prompt": "away", "max_tokens": 2}, timeout=30)
            seen.add(r.status)
        assert seen <= {200, 503} and 200 in seen, (kind, seen)
        mesh.ready()


def test_health_tells_of_a_dead_engine(start, tiny):
    s = start(tiny, "--heartbeat-timeout", "1").ready()
    os.kill(s.kids("executor")[0], signal.SIGSTOP)
    sv.wait_for("/health sees it", lambda: s.get("/health").status == 503)
    assert s.get("/live").status == 200
    os.kill(s.kids("executor")[0], signal.SIGCONT)
    sv.wait_for("/health sees it again", lambda: s.get("/health").status == 200)
    assert s.complete()["choices"]

