"""Processes that the kernel kills for want of memory are named, and survived like others that die; those that somebody else kills are not
called that."""

import pytest

import memgroup
import server as sv

pytestmark = pytest.mark.root


@pytest.fixture
def group():
    if not memgroup.parent():
        pytest.skip("no control group of memory can be made here")
    g = memgroup.Group()
    yield g
    g.close()


def kills(s, kind):
    return s.metric("sluice:oom_kills_total", process=kind)


def test_killed_for_want_of_memory(group, models):
    with sv.Server(models(4096, 2, 64), frontends=2, wrap=group.wrap) as s:
        s.ready()
        body = {"max_tokens": 800, "ignore_eos": True, "return_token_ids": True}
        want = s.stream("memory", **body).finish()
        for kind, name, hint in (("worker", "worker 0", "--gpu-memory-utilization"), ("executor", "executor", "--max-requests"), ("frontend", "frontend", "--max-connections")):
            stream = s.stream("memory", **body)
            stream.next()
            group.kill(s.kids(kind)[-1], parent=s.p.pid)
            if kind != "frontend":
                assert stream.finish() == want
            stream.close()
            sv.wait_for("it is named", lambda: s.lines(name, "was killed by the kernel for want of memory (control group", "MiB were used", hint))
            s.ready()
            assert kills(s, kind) == 1
        s.kill("worker")
        sv.wait_for("it is told apart", lambda: s.lines("worker 0 was ended by signal 9 (Killed) from outside"))
        s.ready()
        assert [kills(s, k) for k in ("worker", "executor", "frontend")] == [1, 1, 1]
        s.wait_idle()
