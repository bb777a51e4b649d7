"""Whose turn it is: tenants, priorities and queue timeouts of a real mesh. The null device makes steps of a known length, one request at a time."""
import threading

import pytest
import server as sv

SLOW_STEPS = ("--device", "null", "--null-step-us", "20000", "--max-num-seqs", "1")
TEXT = "/v1/completions"


class Crowd:
    """Requests that wait behind one that runs; in .ended their names in the order in which they ended."""

    def __init__(self, server):
        self.server, self.ended, self.threads, self.answers = server, [], [], {}
        self.first = server.stream(max_tokens=3000, ignore_eos=True)
        assert self.first.next()
        self.n_waiting = 0

    def add(self, name, tenant=None, **kw):
        """It waits in the engine when this returns."""
        def run():
            headers = ["X-Gateway-Inference-Fairness-Id: " + tenant] if tenant else []
            body = {"model": self.server.name, "prompt": "the inn", "max_tokens": 3, "ignore_eos": True, **kw}
            self.answers[name] = self.server.post(TEXT, body, headers=headers)
            self.ended.append(name)
        self.threads.append(threading.Thread(target=run))
        self.threads[-1].start()
        self.n_waiting += 1
        sv.wait_for("%d requests wait" % self.n_waiting, lambda: self.server.metric("vllm:num_requests_waiting") == self.n_waiting)

    def finish(self):
        self.first.close()
        for t in self.threads:
            t.join()
        assert all(a.status == 200 for a in self.answers.values()), self.answers
        return self.ended


def test_a_crowd_of_one_tenant_does_not_hold_up_another(start, tiny):
    s = start(tiny, *SLOW_STEPS).ready()
    crowd = Crowd(s)
    for i in range(5):
        crowd.add("a%d" % i, "many")
    crowd.add("b", "few")
    assert s.metric("sluice:tenants") == 3
    ended = crowd.finish()
    assert ended.index("b") <= 1, ended
    assert [e for e in ended if e != "b"] == ["a%d" % i for i in range(5)]
    m = s.metrics()
    for name in ("queue", "prefill"):
        key = next(k for k in m if k.startswith("vllm:request_%s_time_seconds_count" % name))
        assert m[key] == 7, key


def test_priorities(start, tiny):
    s = start(tiny, *SLOW_STEPS, "--scheduling-policy", "priority").ready()
    crowd = Crowd(s)
    for name, priority in (("last", 5), ("second", -1), ("first", -7), ("third", 0)):
        crowd.add(name, priority=priority)
    assert crowd.finish() == ["first", "second", "third", "last"]


def test_without_the_policy_a_priority_is_refused(server):
    r = server.post(TEXT, {"model": server.name, "prompt": "x", "priority": 3})
    assert r.status == 400 and r.error()["message"] == "Got priority 3 but Priority scheduling is not enabled.", r


@pytest.mark.parametrize("stream", [False, True])
def test_who_waits_too_long_gets_503(start, tiny, stream):
    """And what runs is not disturbed."""
    s = start(tiny, *SLOW_STEPS, "--queue-timeout", "0.2").ready()
    first = s.stream(max_tokens=3000, ignore_eos=True)
    assert first.next()
    r = s.post(TEXT, {"model": s.name, "prompt": "x", "stream": stream})
    assert r.status == 503 and "has waited for" in r.error()["message"], r
    assert int(r.headers["retry-after"]) >= 1
    assert all(first.next() for _ in range(20))
    first.close()
    assert s.complete("x", max_tokens=2)["usage"]["completion_tokens"] == 2
