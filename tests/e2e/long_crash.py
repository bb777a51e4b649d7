"""The crash matrix: at least 200 streams of the default model live at each kill; frontend, worker and executor; killed, stopped, out of
memory; while streams wait, are read, decode, are sampled, and while the server drains. Minutes on a quiet machine: `make check-long` runs
it, prints a table, and writes build/crash-matrix.json.

  CRASH_KILLS, CRASH_LIVE, CRASH_TOKENS, CRASH_SEED   other sizes
  CRASH_ONLY   of the matrix only what has this word: worker, stop, drain ..."""
import json
import os

import pytest

import crash
import memgroup
import server as sv
import swarm

pytestmark = pytest.mark.real
LIVE = int(os.environ.get("CRASH_LIVE", 200))
TOKENS = int(os.environ.get("CRASH_TOKENS", 30))
KILLS = int(os.environ.get("CRASH_KILLS", 60))
PHASES = ("queue", "prefill", "decode", "sampling", "drain")


def make(matrix, group):
    return sv.Server(sv.REAL_MODEL, "--kv-cache-memory-bytes", "1G", *matrix.flags(), frontends=2, name="smollm2", wrap=group.wrap if group else ())


@pytest.fixture
def group():
    if os.geteuid() != 0 or not memgroup.parent():
        yield None
        return
    g = memgroup.Group()
    yield g
    g.close()


def plan(rng, ways):
    """All combinations, then again, until there are KILLS; what has not been for long comes first. Drains last: each ends its server."""
    cells = [(p, k, w) for w in ways for p in PHASES for k in crash.KINDS if os.environ.get("CRASH_ONLY", "") in (p, k, w, "")]
    rounds = []
    while len(rounds) < KILLS:
        rng.shuffle(cells)
        rounds += cells[:KILLS - len(rounds)]
    return sorted(rounds, key=lambda r: r[0] == "drain")


def test_matrix(group):
    rng = crash.seeded()
    matrix = crash.Matrix(LIVE + LIVE // 5, LIVE, LIVE * 4 // 5, TOKENS)
    rounds = plan(rng, ("kill", "stop", "oom") if group else ("kill", "stop"))
    s = watch = None
    try:
        while rounds:
            phase, kind, way = rounds[0]
            if s is None or s.p.poll() is not None:
                if s:
                    s.stop()
                s = make(matrix, group)
                s.ready(120)
                if not matrix.want:
                    matrix.undisturbed(s)
                watch = crash.Watch(s)
            if matrix.round(s, phase, kind, way, rng, group, watch):
                print(matrix.table().splitlines()[-1], flush=True)
                del rounds[0]
        s.stop()
    finally:
        if s and not s.log.closed:
            s.release()
        print(matrix.table(), json.dumps(matrix.summary(), indent=1), sep="\n", flush=True)
        with open(os.path.join(sv.ROOT, "build", "crash-matrix.json"), "w") as f:
            json.dump({"summary": matrix.summary(), "rounds": matrix.rounds}, f, indent=1)
    p50 = {k: v["p50"] for k, v in matrix.summary()["recovery_s"].items()}
    assert p50.get("worker", 0) < 1 and p50.get("executor", 0) < 0.5 and p50.get("frontend", 0) < 0.5, p50


def test_worker_and_executor_at_once(group):
    rng = crash.seeded()
    matrix = crash.Matrix(64, 48, 48, TOKENS)
    with make(matrix, group) as s:
        s.ready(120)
        matrix.undisturbed(s)
        watch = crash.Watch(s)
        for _ in range(max(1, KILLS // 10)):
            w = swarm.Swarm(s)
            streams = w.start(matrix.bodies(True))
            matrix.wait_for_phase(w, "sampling", rng)
            s.kill("worker")
            s.kill("executor")
            assert w.finish(300)
            assert matrix.judge(s, streams, True, "worker") == 0
            w.close()
            s.ready()
            s.wait_idle(30)
            watch.expect_same()
