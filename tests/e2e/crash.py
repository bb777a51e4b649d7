"""Streams under way while a process of the mesh is killed; used by test_crash.py and long_crash.py."""
import os
import random
import signal
import threading
import time

import server as sv

KINDS = ("frontend", "worker", "executor")


class Client(threading.Thread):
    """One stream, read to its end in a thread of its own."""

    def __init__(self, s, prompt, **kw):
        super().__init__(daemon=True)
        self.prompt, self.n_events, self.error, self.result, self.frontend = prompt, 0, None, None, None
        self.stream = s.stream(prompt, return_token_ids=True, timeout=600, **kw)
        self.start()

    def run(self):
        try:
            for e in self.stream:
                self.n_events += 1
                if self.frontend is None:
                    self.frontend = int(e["id"][-16:], 16) >> 48  # client ids carry their frontend
            self.result = self.stream.result()
        except Exception as e:  # noqa: BLE001 (judged by the test)
            self.error = e
        finally:
            self.stream.close()


def prompts_of(n):
    """Some short, some of several blocks, some that share a beginning."""
    return ["%s stream %d" % ("the red inn " * (i % 5), i) for i in range(n)]


def undisturbed(s, prompts, **kw):
    clients = [Client(s, p, **kw) for p in prompts]
    for c in clients:
        c.join()
        assert c.error is None, c.error
    return {c.prompt: c.result for c in clients}


class Watch:
    """What a mesh holds; after a crash it must hold the same."""

    def __init__(self, s):
        self.s = s
        self.fds = {k: self.counts(k) for k in KINDS}
        self.supervisor = (sv.fd_count(s.p.pid), sv.rss_mib(s.p.pid))
        self.n_pids = len(s.pids())
        self.files = sorted(os.listdir(self.folder()))

    def folder(self):
        return os.path.join(self.s.tmp, os.listdir(self.s.tmp)[0])

    def counts(self, kind):
        return sorted(sv.fd_count(p) for p in self.s.kids(kind))

    def expect_same(self):
        s = self.s
        sv.wait_for("as many processes as before", lambda: len(s.pids()) == self.n_pids)
        same = lambda: all(b <= a + 2 for k in KINDS for a, b in zip(self.fds[k], self.counts(k)))
        sv.wait_for("as many descriptors as before: %s" % self.fds, same)
        assert sv.fd_count(s.p.pid) <= self.supervisor[0], "the supervisor leaks descriptors"
        assert sv.rss_mib(s.p.pid) < self.supervisor[1] + 8 * sv.SLOW, "the supervisor grows"
        sv.wait_for("as many sockets as before: %s" % self.files, lambda: len(os.listdir(self.folder())) == len(self.files))


def kill_once(s, kind, prompts, want, rng, watch, **kw):
    """One kill at a random moment of the streams. Returns how many streams lived through it."""
    before = restarts(s, kind)
    clients = [Client(s, p, **kw) for p in prompts]
    total = sum(len(want[p][1]) for p in prompts)
    at = int(total * rng.uniform(0.02, 0.8))
    sv.wait_for("%d of %d tokens" % (at, total), lambda: sum(c.n_events for c in clients) >= at or not any(c.is_alive() for c in clients), 300, 0.002)
    victim = rng.choice(s.kids(kind))
    os.kill(victim, signal.SIGKILL)
    for c in clients:
        c.join(300)
        assert not c.is_alive(), "a stream hangs after the death of the %s: %r\n%s" % (kind, c.prompt, s.text()[-3000:])
    broken = [c for c in clients if c.error is not None]
    if kind == "frontend":
        assert len({c.frontend for c in broken if c.frontend is not None}) <= 1, "streams of a living frontend broke: %s" % [(c.frontend, c.error) for c in broken]
    else:
        assert not broken, "streams broke with the %s: %s\n%s" % (kind, [(c.prompt, c.error) for c in broken][:3], s.text()[-3000:])
    for c in clients:
        if c.error is None:
            assert c.result == want[c.prompt], difference(c.result, want[c.prompt], kind, c.prompt)
    sv.wait_for("the %s is back" % kind, lambda: restarts(s, kind) > before, 30, 0.05)
    s.ready()
    s.wait_idle(30)
    watch.expect_same()
    return len(clients) - len(broken)


def restarts(s, kind):
    try:
        return s.metric("sluice:restarts_total", process=kind)
    except OSError:  # the frontend that was killed held this connection
        return -1


def difference(got, want, kind, prompt):
    n = next((i for i, (a, b) in enumerate(zip(got[1], want[1])) if a != b), min(len(got[1]), len(want[1])))
    return "after the death of the %s, %r differs from token %d on: %s instead of %s (%d and %d tokens; %s, %s)" % (
        kind, prompt, n, got[1][n:n + 8], want[1][n:n + 8], len(got[1]), len(want[1]), got[2], want[2])


def seeded(seed=None):
    seed = int(os.environ.get("CRASH_SEED") or seed or time.time_ns() % (1 << 32))
    print("CRASH_SEED=%d repeats the moments, as far as moments can be repeated" % seed)
    return random.Random(seed)
