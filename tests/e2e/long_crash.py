"""Sixty-four streams of the default model, two frontends, each kind of process killed ten times at random moments. Minutes to
hours, by the processor: `make check-long` runs it.

  CRASH_STREAMS, CRASH_TOKENS, CRASH_KILLS, CRASH_SEED   other sizes"""
import os

import pytest

import crash
import server as sv

pytestmark = pytest.mark.real
STREAMS = int(os.environ.get("CRASH_STREAMS", 64))
TOKENS = {"max_tokens": int(os.environ.get("CRASH_TOKENS", 64)), "ignore_eos": True}
KILLS = int(os.environ.get("CRASH_KILLS", 10))


@pytest.fixture(scope="module")
def mesh():
    with sv.Server(sv.REAL_MODEL, frontends=2, name="smollm2") as s:
        s.ready(120)
        s.want = crash.undisturbed(s, crash.prompts_of(STREAMS), **TOKENS)
        s.wait_idle()
        s.watch = crash.Watch(s)
        yield s


@pytest.mark.parametrize("kind", crash.KINDS)
def test_every_stream_whose_frontend_lived_is_whole(mesh, kind):
    rng, lived = crash.seeded(), 0
    for i in range(KILLS):
        n = crash.kill_once(mesh, kind, crash.prompts_of(STREAMS), mesh.want, rng, mesh.watch, **TOKENS)
        print("%s %d: %d of %d streams lived" % (kind, i, n, STREAMS), flush=True)
        lived += n
    assert lived >= KILLS * STREAMS // 4 if kind == "frontend" else lived == KILLS * STREAMS


def test_any_two_at_once(mesh):
    rng = crash.seeded()
    for i in range(KILLS):
        clients = [crash.Client(mesh, p, **TOKENS) for p in crash.prompts_of(STREAMS)]
        at = rng.randrange(STREAMS * TOKENS["max_tokens"] // 2)
        sv.wait_for("%d tokens" % at, lambda: sum(c.n_events for c in clients) >= at, 300)
        mesh.kill("worker")
        mesh.kill("executor")
        for c in clients:
            c.join(300)
            assert c.error is None and c.result == mesh.want[c.prompt], (c.prompt, c.error)
        mesh.ready()
        mesh.wait_idle(30)
        mesh.watch.expect_same()
