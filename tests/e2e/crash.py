"""Streams under way while a process of the mesh is killed; used by test_crash.py and long_crash.py."""
import os
import random
import signal
import threading
import time

import server as sv
import swarm

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


class Matrix:
    """Rounds of streams in each of which one process is lost at a random moment of a phase. s: a server made with matrix_flags().

    phase     what the streams, of which all are live, are doing
    queue     all slots are taken, others wait for one
    prefill   slots are being filled: most have had no token
    decode    greedy
    sampling  with seeds, penalties and log-probabilities
    drain     likewise, after SIGTERM: the server ends afterwards
    way       kill: SIGKILL; stop: SIGSTOP, until the supervisor notices; oom: by the kernel, for want of memory (needs a memgroup)"""

    def __init__(self, n, n_live, slots, tokens):
        """n streams, of which n_live at least are live at each kill; a stream has about `tokens` tokens."""
        self.n, self.n_live, self.slots, self.tokens = n, n_live, slots, tokens
        self.want, self.rounds = {}, []

    def flags(self):
        return ("--max-num-seqs", str(self.slots), "--hang-timeout", str(0.5 * sv.SLOW), "--max-restarts", "0")

    def bodies(self, sampled):
        return [{"prompt": "%s stream %d" % ("the red inn stood by %d roads " % i * (i % 8 == 3) * 12, i), "ignore_eos": True,
                 "max_tokens": self.tokens * 2 // 3 + i * 7 % (self.tokens * 2 // 3),  # they end one after the other
                 **({"temperature": 1, "seed": i, "top_p": 0.95, "logprobs": 2, "presence_penalty": 0.3} if sampled else {"temperature": 0})}
                for i in range(self.n)]

    def undisturbed(self, s):
        for sampled in (False, True):
            w = swarm.Swarm(s)
            streams = w.start(self.bodies(sampled))
            assert w.finish(600 * sv.SLOW)
            self.want[sampled] = [x.said() for x in streams]
        s.wait_idle()

    def wait_for_phase(self, w, phase, rng):
        """Reads until the random moment of the phase has come."""
        if phase == "prefill":
            n = rng.randint(0, self.slots // 4)
            until = lambda: w.n_first >= n
        elif phase == "drain":
            n = w.n_tokens + rng.randint(0, self.slots)
            until = lambda: w.n_tokens >= n
        elif phase == "queue":
            n = rng.randint(self.slots // 2, self.slots)
            until = lambda: w.n_first >= n
        else:
            n = self.slots + rng.randint(0, self.slots * self.tokens // 2)
            until = lambda: w.n_tokens >= n or w.n_open <= self.n_live + self.n // 40
        assert w.run(until, 300 * sv.SLOW, 0.002), "the moment does not come"

    def lose(self, w, pid, way, group):
        """The moment at which the process was dead."""
        thread = None
        if way == "oom":
            thread = threading.Thread(target=group.kill, args=(pid,))
            thread.start()
        else:
            os.kill(pid, signal.SIGSTOP if way == "stop" else signal.SIGKILL)
        assert w.run(lambda: not sv.is_alive(pid), 30 * sv.SLOW, 0.002), "%d is not dead after %s" % (pid, way)
        at = time.monotonic()
        if thread:
            w.run(lambda: not thread.is_alive(), 30 * sv.SLOW, 0.002)
        return at

    def round(self, s, phase, kind, way, rng, group=None, watch=None):
        """False: the moment was missed, because this reader was too slow; it does not count. After a drain the server has ended."""
        sampled = phase != "decode"
        before, victim = restarts(s, kind), rng.choice(s.kids(kind))
        w = swarm.Swarm(s)
        streams = w.start(self.bodies(sampled))
        if phase == "drain":
            assert w.run(lambda: w.n_first == self.slots, 300 * sv.SLOW)
            s.p.send_signal(signal.SIGTERM)
        self.wait_for_phase(w, phase, rng)
        live, begin = w.n_open, time.monotonic()
        if live < self.n_live:
            w.finish(300 * sv.SLOW)
            w.close()
            if phase == "drain":
                s.wait(60)
            return False
        dead = self.lose(w, victim, way, group)
        probes = [Probe(s, i * 0.008) for i in range(12)] if kind == "frontend" and phase != "drain" else []
        if not w.finish(300 * sv.SLOW):
            raise AssertionError("streams hang after the %s of the %s\n%s" % (way, kind, s.text()[-3000:]))
        broken = self.judge(s, streams, sampled, kind)
        end = w.silence(dead) if kind != "frontend" else max(p.end() for p in probes) if probes else None
        self.rounds.append({"phase": phase, "process": kind, "way": way, "live": live, "broken": broken,
                            "noticed_s": round(dead - begin, 3), "recovery_s": round(end - dead, 3) if end else None})
        w.close()
        if phase == "drain":
            assert s.wait(60) == 0, s.text()[-3000:]
            return True
        sv.wait_for("the %s is back" % kind, lambda: restarts(s, kind) > before, 30, 0.05)
        s.ready()
        s.wait_idle(30)
        if watch:
            watch.expect_same()
        return True

    def judge(self, s, streams, sampled, kind):
        """Each stream whose frontend lived is what it would have been. Returns how many were lost with theirs."""
        broken, frontends = [], set()
        for x, want in zip(streams, self.want[sampled]):
            try:
                said = x.said()
            except (OSError, AssertionError) as e:
                broken.append((x.frontend, repr(e)))
                if x.frontend is not None:
                    frontends.add(x.frontend)
                continue
            assert said == want, "after the death of the %s, %r\nis %s\nnot %s" % (kind, x.body["prompt"][-40:], said, want)
        assert not broken or kind == "frontend", "streams broke with the %s: %s\n%s" % (kind, broken[:3], s.text()[-3000:])
        assert len(frontends) <= 1, "streams of a living frontend broke: %s" % broken
        return len(broken)

    def table(self):
        lines = ["%-9s %-9s %-5s %5s %7s %9s %10s" % ("phase", "process", "way", "live", "broken", "noticed", "recovery")]
        for r in self.rounds:
            lines.append("%-9s %-9s %-5s %5d %7d %8.3fs %9s" % (r["phase"], r["process"], r["way"], r["live"], r["broken"], r["noticed_s"],
                                                                "-" if r["recovery_s"] is None else "%.3fs" % r["recovery_s"]))
        return "\n".join(lines)

    def summary(self):
        count = lambda key: {v: sum(r[key] == v for r in self.rounds) for v in sorted({r[key] for r in self.rounds})}
        out = {"kills": len(self.rounds), "by_phase": count("phase"), "by_process": count("process"), "by_way": count("way"), "recovery_s": {}}
        for kind in KINDS:
            v = sorted(r["recovery_s"] for r in self.rounds if r["process"] == kind and r["recovery_s"] is not None)
            if v:
                out["recovery_s"][kind] = {"p50": v[len(v) // 2], "max": v[-1]}
        return out


class Probe(threading.Thread):
    """A new connection with one request, some time from now: it may be given to the frontend that is away, and waits for its successor."""

    def __init__(self, s, delay):
        super().__init__(daemon=True)
        self.s, self.delay, self.at = s, delay, None
        self.start()

    def run(self):
        time.sleep(self.delay)
        try:
            if self.s.get("/ping", timeout=20).status == 200:
                self.at = time.monotonic()
        except OSError:  # it was accepted by the one that died
            pass

    def end(self):
        self.join()
        assert self.at, "a new connection was not served"
        return self.at


def restarts(s, kind):
    try:
        return s.metric("sluice:restarts_total", process=kind)
    except OSError:  # the frontend that was killed held this connection
        return -1


def seeded(seed=None):
    seed = int(os.environ.get("CRASH_SEED") or seed or time.time_ns() % (1 << 32))
    print("CRASH_SEED=%d repeats the moments, as far as moments can be repeated" % seed)
    return random.Random(seed)
