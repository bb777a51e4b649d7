"""A request that always kills its worker is found among a hundred others within three restarts of the worker, and ends alone."""
import os

import pytest

import server as sv
import swarm

POISON = 250
OTHERS = 100


@pytest.fixture
def poisoned(start, models, tmp_path):
    """A server whose worker dies of a token."""
    for name in os.listdir(sv.BIN):
        os.symlink(os.path.join(sv.BIN, name), tmp_path / name)
    os.unlink(tmp_path / "sluice-worker-cpu")
    os.symlink(os.path.join(sv.ROOT, "build/tests/poison/sluice-worker-cpu"), tmp_path / "sluice-worker-cpu")
    return start(models(2048, 2, 64), frontends=2, env={"SLUICE_BIN_DIR": str(tmp_path), "POISON_TOKEN": str(POISON)}).ready()


def bodies():
    """None of them ever draws the token."""
    return [{"prompt": "stream %d of many" % i, "max_tokens": 60, "ignore_eos": True, "logit_bias": {str(POISON): -100}, "temperature": i % 2, "seed": i} for i in range(OTHERS)]


def run(s, more=()):
    w = swarm.Swarm(s)
    streams = w.start(bodies())
    bad = None
    if more:
        assert w.run(lambda: w.n_tokens > 300, 60)
        bad = w.start(more)[0]
    assert w.finish(120), "a stream hangs"
    return [x.said() for x in streams], bad


@pytest.mark.parametrize("how", ["in its prompt", "when it is drawn"])
def test_one_among_many(poisoned, how):
    s = poisoned
    want, _ = run(s)
    more = {"prompt": [POISON], "max_tokens": 60} if how == "in its prompt" else {"prompt": "bad", "logit_bias": {str(POISON): 100}, "max_tokens": 60, "ignore_eos": True, "temperature": 0}
    got, bad = run(s, [more])
    assert got == want
    with pytest.raises(swarm.Ended, match="brought a worker down when it ran alone"):
        bad.said()
    assert s.metric("sluice:restarts_total", process="worker") <= 3
    assert s.complete(logit_bias={str(POISON): -100})["choices"]
    s.wait_idle()
