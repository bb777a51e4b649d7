"""Load of every kind at once, good and bad, with crashes in between, and the books of both sides: what the clients saw must be what the
server counts, its memory must stay flat, and no error may come that was not made on purpose."""
import asyncio
import collections
import itertools
import json
import os
import random
import signal
import socket
import struct

import server as sv

ENDLESS = 100000
BROKEN = (ConnectionError, asyncio.IncompleteReadError, BrokenPipeError)
# Of 1000 requests, so many of each kind.
KINDS = {"plain": 600, "stream": 200, "chat": 80, "bad_json": 20, "not_found": 20, "models": 20, "abort": 20, "reset": 10, "half_close": 10, "slow": 5, "big_head": 8, "big_body": 7}


class Unexpected(Exception):
    pass


class Client:
    """One connection after the other, one request at a time."""

    def __init__(self, load, rng):
        self.load, self.rng, self.r, self.w, self.kills_at_open = load, rng, None, None, 0

    async def open(self, rcvbuf=None):
        s = socket.socket()
        if rcvbuf:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        s.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(s, ("127.0.0.1", self.load.server.port))
        except BaseException:
            s.close()
            raise
        self.r, self.w = await asyncio.open_connection(sock=s, limit=1 << 22)
        self.kills_at_open = self.load.frontend_kills

    def close(self, reset=False):
        if self.w:
            if reset:
                self.w.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.w.transport.abort()
            self.w.close()
        self.r = self.w = None

    async def head(self):
        lines = (await self.r.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        self.headers = dict(l.lower().split(": ", 1) for l in lines[1:] if l)
        status = int(lines[0][9:12])
        self.load.seen["%dxx" % (status // 100)] += 1
        return status

    async def body(self, pause=0):
        if "content-length" in self.headers:
            return await self.r.readexactly(int(self.headers["content-length"]))
        parts = []
        while True:
            n = int(await self.r.readuntil(b"\r\n"), 16)
            parts.append((await self.r.readexactly(n + 2))[:-2])
            if n == 0:
                return b"".join(parts)
            if pause:
                await asyncio.sleep(pause)

    async def send(self, method, path, body=None, head=""):
        raw = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        self.w.write(("%s %s HTTP/1.1\r\nHost: x\r\n%sContent-Length: %d\r\n\r\n" % (method, path, head, len(raw))).encode() + raw)
        await self.w.drain()

    async def expect(self, status, pause=0):
        got = await self.head()
        body = await self.body(pause)
        if got != status:
            raise Unexpected("status %d instead of %d: %r" % (got, status, body[:300]))
        if self.headers.get("connection") == "close":
            self.close()
        return body

    # ---- the kinds ----

    def ask(self, n, **kw):
        return {"model": "tiny", "prompt": "w%d " % self.rng.randrange(10**6) * self.rng.randrange(1, 30), "max_tokens": n, "ignore_eos": True, **kw}

    async def finished(self, body):
        await self.send("POST", "/v1/completions", body)
        raw = await self.expect(200, getattr(self, "pause", 0))
        if body.get("stream"):
            if b"error" in raw or not raw.rstrip().endswith(b"data: [DONE]"):
                raise Unexpected("a stream's end: %r" % raw[-300:])
        else:
            json.loads(raw)["choices"][0]["finish_reason"] == "length" or self.wrong(raw)
        self.load.seen["length"] += 1

    def wrong(self, raw):
        raise Unexpected("an answer: %r" % raw[:300])

    async def plain(self):
        await self.finished(self.ask(self.rng.choice((1, 4, 16))))

    async def stream(self):
        await self.finished(self.ask(self.rng.choice((1, 8, 64)), stream=True))

    async def chat(self):
        body = self.ask(8, logprobs=True, top_logprobs=3, messages=[{"role": "user", "content": "hello"}])
        del body["prompt"]
        await self.send("POST", "/v1/chat/completions", body)
        json.loads(await self.expect(200))
        self.load.seen["length"] += 1

    async def slow(self):
        self.close()
        await self.open(rcvbuf=4096)
        self.pause = 0.02
        await self.finished(self.ask(600, stream=True))
        self.close()

    async def bad_json(self):
        await self.send("POST", "/v1/completions", b'{"model": "tiny", "prompt": ')
        await self.expect(400)

    async def not_found(self):
        await self.send("GET", "/no/such")
        await self.expect(404)

    async def models(self):
        await self.send("GET", "/v1/models")
        await self.expect(200)

    async def big_head(self):
        await self.send("GET", "/v1/models", head="X-Long: %s\r\n" % ("a" * 40000))
        await self.expect(431)
        self.close()

    async def big_body(self):
        self.w.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 900000000\r\n\r\n{")
        await self.expect(413)
        self.close()

    async def begin_endless(self):
        await self.send("POST", "/v1/completions", self.ask(ENDLESS, stream=True))
        status = await self.head()
        if status != 200:
            raise Unexpected("status %d: %r" % (status, await self.body()))
        await self.r.readexactly(200)  # some of it
        self.load.seen["gone"] += 1

    async def abort(self):
        await self.begin_endless()
        self.close()

    async def reset(self):
        await self.begin_endless()
        self.close(reset=True)

    async def half_close(self):
        """A client that sends nothing more counts as gone; the server closes."""
        await self.begin_endless()
        self.w.write_eof()
        while await self.r.read(1 << 16):
            pass
        self.close()

    async def run(self):
        while not self.load.stopping:
            await asyncio.sleep(self.rng.expovariate(1 / self.load.think_s))
            kind = self.rng.choices(list(KINDS), KINDS.values())[0]
            self.load.under_way += 1
            try:
                if not self.w:
                    await self.open()
                self.pause = 0
                await getattr(self, kind)()
                self.load.n += 1
            except BROKEN as e:
                self.close()
                # A frontend's death is excused, of a kept connection also when it was idle then; and a moment of grace for those that connect meanwhile.
                if self.kills_at_open == self.load.frontend_kills and not self.load.just_killed():
                    self.load.errors.append("%s: %r" % (kind, e))
                self.load.seen["broken"] += 1
            except (Unexpected, AssertionError, ValueError, KeyError) as e:
                self.close()
                self.load.errors.append("%s: %r" % (kind, e))
            finally:
                self.load.under_way -= 1
        self.close()


class Load:
    def __init__(self, server, n, seed=1, think_s=0.5, hang_s=0):
        """hang_s: the server's --hang-timeout; 0: nobody is stopped, only killed."""
        self.hang_s = hang_s
        self.server, self.n_clients, self.seed, self.think_s = server, n, seed, think_s
        self.seen, self.errors, self.n = collections.Counter(), [], 0
        self.frontend_kills, self.grace_until, self.under_way, self.stopping = 0, 0, 0, False
        self.kills = collections.Counter()

    def just_killed(self):
        return asyncio.get_running_loop().time() < self.grace_until

    def kill(self, kind, sig, rng):
        """sig: SIGKILL, or SIGSTOP, which the server turns into a death within --hang-timeout."""
        pids = self.server.kids(kind)
        if not pids:
            return
        if kind == "frontend":
            self.frontend_kills += 1
            self.grace_until = asyncio.get_running_loop().time() + (1 if sig == signal.SIGKILL else 2 * self.hang_s + 1)
        os.kill(rng.choice(pids), sig)
        self.kills["%s %s" % (kind, sig.name)] += 1

    async def quiet(self):
        """No client asks any more, and the server has noticed who has left."""
        self.stopping = True
        await asyncio.gather(*self.tasks)
        await asyncio.to_thread(self.server.wait_idle, 60)

    def begin(self):
        self.stopping = False
        rng = random.Random(self.seed)
        self.seed += 1
        self.tasks = [asyncio.create_task(Client(self, random.Random(rng.random())).run()) for _ in range(self.n_clients)]


NAMES = {"2xx": ("sluice:http_responses_total", 'code="2xx"'), "4xx": ("sluice:http_responses_total", 'code="4xx"'), "5xx": ("sluice:http_responses_total", 'code="5xx"'),
         "length": ("vllm:request_success_total", 'finished_reason="length"'), "gone": ("sluice:client_gone_total", ""),
         "abort": ("vllm:request_success_total", 'finished_reason="abort"'), "error": ("vllm:request_success_total", 'finished_reason="error"'),
         "stop": ("vllm:request_success_total", 'finished_reason="stop"')}


def book(server):
    """The server's own counts."""
    m = server.metrics()
    return {k: sum(v for name, v in m.items() if name.split("{")[0] == metric and label in name) for k, (metric, label) in NAMES.items()}


def rss_kib(server):
    """{kind: KiB that its processes hold for themselves}"""
    out = collections.Counter()
    for pid in server.pids():
        text = sv.read_proc(pid, "smaps_rollup").decode()
        anon = next((int(l.split()[1]) for l in text.splitlines() if l.startswith("Private_Dirty:")), 0)
        name = os.path.basename(sv.read_proc(pid, "cmdline").split(b"\0")[0].decode()) or "?"
        out[name] += anon
    return out


async def phase(load, seconds, kills, every_s, rng, samples=None):
    """Load for a while; kills: kinds of processes, one of which dies each every_s. Returns (clients' counts, server's counts)."""
    before, load.seen = book(load.server), collections.Counter()
    load.server.n_scrapes = 0
    load.begin()
    loop = asyncio.get_running_loop()
    end, kill_at = loop.time() + seconds, loop.time() + every_s
    next_kind = itertools.cycle(kills)
    while loop.time() < end:
        await asyncio.sleep(min(1, seconds / 20))
        if kills and loop.time() >= kill_at:
            kill_at = loop.time() + every_s * rng.uniform(0.5, 1.5)
            load.kill(next(next_kind), signal.SIGSTOP if load.hang_s and rng.random() < 0.25 else signal.SIGKILL, rng)
        if samples is not None:
            samples.append(await asyncio.to_thread(rss_kib, load.server))
    await load.quiet()
    after = book(load.server)
    counted = {k: after[k] - before[k] for k in after}
    counted["2xx"] -= load.server.n_scrapes  # each is counted after it was written: `before` here, but not `after`
    return load.seen, counted


def expect_same_books(seen, counted):
    """Without deaths of frontends both are equal; with them, what was under way there may have been counted and not arrived."""
    slack = seen["broken"]
    for k in ("2xx", "4xx", "5xx", "length", "gone"):
        diff = counted[k] - seen[k]
        # The end of a request that its client has seen, or made, may be what its frontend did not live to count.
        assert 0 <= diff <= slack if k not in ("length", "gone") else -slack <= diff <= slack, (k, dict(seen), counted)
    assert counted["error"] == 0 and counted["stop"] == 0 and abs(counted["abort"] - counted["gone"]) <= slack, counted
