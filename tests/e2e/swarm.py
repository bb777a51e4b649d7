"""Hundreds of streams read by one thread: who read them with a thread each would measure Python's threads. Standard library only.

    swarm = Swarm(s)
    streams = swarm.start(bodies)
    swarm.run(lambda: swarm.n_tokens > 100, 60)     # reads until it is true
    swarm.finish(300)                               # reads all to their ends
    streams[0].said()                               # what a stream said, to be compared with another run
"""
import json
import selectors
import socket
import time

import wire


class Ended(AssertionError):
    """A stream that is not whole."""


class Stream:
    """One POST that streams. Bytes are only collected, and tokens counted, until somebody asks."""

    def __init__(self, swarm, path, body):
        self.swarm, self.body, self.raw = swarm, body, bytearray()
        self.n_tokens, self.first, self.open, self.error, self.frontend = 0, None, True, None, None
        self.out = wire.request("POST", path, {**body, "stream": True})
        self.s = socket.socket(socket.AF_INET)
        self.s.setblocking(False)
        self.s.connect_ex((swarm.s.host, swarm.s.port))

    def close(self, error=None):
        if self.open:
            self.open, self.error = False, error
            self.swarm.selector.unregister(self.s)
            self.s.close()
            self.swarm.n_open -= 1

    def on_event(self, events, now):
        try:
            if events & selectors.EVENT_WRITE:
                self.out = self.out[self.s.send(self.out):]
                if not self.out:
                    self.swarm.selector.modify(self.s, selectors.EVENT_READ, self)
            if not events & selectors.EVENT_READ:
                return
            data = self.s.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError as e:
            return self.close(e)
        if not data:
            return self.close(Ended("the connection ended"))
        self.on_data(data, now)

    def on_data(self, data, now):
        n = data.count(b"\ndata: {")
        self.raw += data
        if n:
            self.n_tokens += n
            self.swarm.on_tokens(n, now)
            if self.first is None:
                self.first = now
                self.swarm.n_first += 1
                at = self.raw.find(b'"id":"')
                if at >= 0:  # else the first event is an error
                    end = self.raw.find(b'"', at + 6)
                    self.frontend = int(self.raw[end - 16:end], 16) >> 48  # client ids carry their frontend
        if self.raw.endswith(b"\r\n0\r\n\r\n") or (not self.raw.startswith(b"HTTP/1.1 200") and b"\r\n\r\n" in self.raw):
            self.close()

    def events(self):
        """The events of an answer that is whole."""
        if self.error:
            raise self.error
        head, _, rest = bytes(self.raw).partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise Ended("%r %r" % (head[:60], rest[:400]))
        body = b""
        while True:
            size, _, rest = rest.partition(b"\r\n")
            n = int(size, 16)
            if n == 0:
                break
            body, rest = body + rest[:n], rest[n + 2:]
        blocks = [b[6:] for b in body.split(b"\n\n") if b.startswith(b"data: ")]
        if not blocks or blocks[-1] != b"[DONE]":
            raise Ended("no [DONE]: %r" % body[-300:])
        return [json.loads(b) for b in blocks[:-1]]

    def said(self):
        """(text, token ids, log-probabilities, finish reason): what may not depend on what happened meanwhile."""
        text, ids, logprobs, reasons = [], [], [], []
        for e in self.events():
            if "error" in e:
                raise Ended(e["error"]["message"])
            for c in e["choices"]:
                text.append(c["text"])
                ids += c.get("token_ids") or []
                if c.get("logprobs"):
                    logprobs += zip(c["logprobs"]["tokens"], c["logprobs"]["token_logprobs"], map(json.dumps, c["logprobs"]["top_logprobs"]))
                if c["finish_reason"]:
                    reasons.append(c["finish_reason"])
        return "".join(text), ids, logprobs, reasons


class Swarm:
    def __init__(self, s):
        self.s = s
        self.selector = selectors.DefaultSelector()
        self.streams, self.n_open, self.n_tokens, self.n_first, self.times = [], 0, 0, 0, []

    def start(self, bodies, path="/v1/completions"):
        new = [Stream(self, path, {"model": self.s.name, "return_token_ids": True, **b}) for b in bodies]
        for w in new:
            self.selector.register(w.s, selectors.EVENT_READ | selectors.EVENT_WRITE, w)
        self.n_open += len(new)
        self.streams += new
        return new

    def on_tokens(self, n, now):
        self.n_tokens += n
        self.times.append(now)

    def run(self, until, seconds, pause=0.005):
        """Reads until until() is true, or nobody is left to read. False: not in that time."""
        end = time.monotonic() + seconds
        while not until():
            if not self.n_open:
                return True
            if time.monotonic() > end:
                return False
            found = self.selector.select(pause)
            now = time.monotonic()
            for key, events in found:
                if key.data.open:
                    key.data.on_event(events, now)
        return True

    def finish(self, seconds):
        return self.run(lambda: False, seconds, 0.05)

    def silence(self, since, wait=0.25):
        """The end of the longest silence of all streams that began until `wait` after `since`; None when nobody spoke again."""
        times = [since] + [t for t in self.times if t > since]
        gaps = [(b - a, b) for a, b in zip(times, times[1:]) if a <= since + wait]
        return max(gaps)[1] if gaps else None

    def close(self):
        for w in self.streams:
            w.close(Ended("closed by the test"))
        self.selector.close()
