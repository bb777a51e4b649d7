"""HTTP by hand: what a test needs to see are bytes, and what a client library would hide. Standard library only."""
import json
import socket
import struct
import time


class Answer:
    def __init__(self, status, headers, body, interim=()):
        self.status, self.headers, self.body, self.interim = status, headers, body, list(interim)

    def text(self):
        return self.body.decode("utf-8")  # strict: an answer that is not UTF-8 is a fault

    def json(self):
        def bad(word):
            raise AssertionError("%s is not JSON" % word)
        return json.loads(self.text(), parse_constant=bad)

    def error(self):
        """The error object of an answer that must be one."""
        e = self.json()["error"]
        assert isinstance(e["message"], str) and e["message"] and {"type", "param", "code"} <= set(e), e
        return e

    def closes(self):
        return "close" in self.headers.get("connection", "").lower()

    def __repr__(self):
        return "<%d %s %r>" % (self.status, self.headers.get("content-type"), self.body[:600])


def request(method, path, body=None, headers=(), host="test", length=True):
    """The bytes of a request; a body that is not bytes becomes JSON."""
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    lines = ["%s %s HTTP/1.1" % (method, path), "Host: " + host, *headers]
    if body is not None:
        if not any(h.lower().startswith("content-type") for h in headers):
            lines.append("Content-Type: application/json")
        if length:
            lines.append("Content-Length: %d" % len(body))
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + (body or b"")


class Gone(OSError):
    """The connection ended before the answer was whole."""


class Conn:
    """host: an address, or the path of a UNIX socket. tls: an ssl.SSLContext. headers: go with each ask()."""

    def __init__(self, host, port, timeout=60, rcvbuf=None, tls=None, headers=()):
        self.deadline = time.monotonic() + timeout
        is_unix = host.startswith("/")
        self.s = socket.socket(socket.AF_UNIX if is_unix else socket.AF_INET6 if ":" in host else socket.AF_INET)
        if rcvbuf:
            self.s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        self.s.settimeout(timeout)
        self.buf = b""
        self.headers = list(headers)
        try:
            self.s.connect(host if is_unix else (host, port))
            if not is_unix:
                self.s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls:
                self.s = tls.wrap_socket(self.s, server_hostname=host)
        except OSError:
            self.s.close()
            raise

    def send(self, data):
        self.s.settimeout(max(0.01, self.deadline - time.monotonic()))
        self.s.sendall(data)

    def try_send(self, data):
        """False when the server closed before it had read all."""
        try:
            self.send(data)
            return True
        except (BrokenPipeError, ConnectionError):
            return False

    def fill(self):
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("no whole answer in time; so far %r" % self.buf[:200])
        self.s.settimeout(left)
        try:
            data = self.s.recv(1 << 16)
        except ConnectionError:
            data = b""
        if not data:
            raise Gone("connection ended; so far %r" % self.buf[:200])
        self.buf += data

    def line(self):
        while b"\r\n" not in self.buf:
            self.fill()
        line, self.buf = self.buf.split(b"\r\n", 1)
        return line

    def exactly(self, n):
        while len(self.buf) < n:
            self.fill()
        data, self.buf = self.buf[:n], self.buf[n:]
        return data

    def head(self):
        interim = []
        while True:
            line = self.line()
            assert line.startswith(b"HTTP/1.1 ") or line.startswith(b"HTTP/1.0 "), line
            status, headers = int(line[9:12]), {}
            while True:
                h = self.line()
                if not h:
                    break
                name, value = h.decode("latin-1").split(":", 1)
                headers[name.strip().lower()] = value.strip()
            if status >= 200:
                return status, headers, interim
            interim.append(status)

    def pieces(self, status, headers, method):
        if method == "HEAD" or status in (204, 304):
            return
        if headers.get("transfer-encoding", "").lower() == "chunked":
            while True:
                n = int(self.line(), 16)
                if n == 0:
                    assert self.line() == b""
                    return
                yield self.exactly(n)
                assert self.exactly(2) == b"\r\n"
        elif "content-length" in headers:
            yield self.exactly(int(headers["content-length"]))
        else:
            try:
                while True:
                    if self.buf:
                        data, self.buf = self.buf, b""
                        yield data
                    self.fill()
            except Gone:
                return

    def answer(self, method="POST"):
        status, headers, interim = self.head()
        return Answer(status, headers, b"".join(self.pieces(status, headers, method)), interim)

    def ask(self, method, path, body=None, headers=()):
        self.send(request(method, path, body, [*self.headers, *headers]))
        return self.answer(method)

    def at_end(self, seconds=5):
        """True when the server closes within that time and sends nothing before."""
        self.s.settimeout(seconds)
        try:
            return not self.buf and self.s.recv(1) == b""
        except socket.timeout:
            return False
        except ConnectionError:
            return True

    def close(self, reset=False):
        if reset:
            self.s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.s.close()

    def __enter__(self):
        return self

    def __exit__(self, *rest):
        self.close()


class Stream:
    """An SSE answer, event by event. Checks the form of each line."""

    def __init__(self, host, port, path, body, timeout=120, rcvbuf=None, **kw):
        self.conn = Conn(host, port, timeout, rcvbuf, **kw)
        self.conn.send(request("POST", path, body, self.conn.headers))
        self.done = False
        self.events = []
        self.raw = b""
        self.status = None

    def open(self):
        """Reads the head."""
        if self.status is None:
            self.status, self.headers, _ = self.conn.head()
            self.parts = self.conn.pieces(self.status, self.headers, "POST")
            if self.status == 200:
                assert self.headers["content-type"].startswith("text/event-stream"), self.headers
            else:
                raise AssertionError("status %d: %r" % (self.status, b"".join(self.parts)))
        return self

    def __iter__(self):
        self.open()
        buf = b""
        for part in self.parts:
            self.raw += part
            buf += part
            while b"\n\n" in buf:
                block, buf = buf.split(b"\n\n", 1)
                text = block.decode("utf-8")  # strict
                if text.startswith(":"):
                    continue
                assert text.startswith("data: ") and "\n" not in text, text
                assert not self.done, "an event after [DONE]: %s" % text
                if text == "data: [DONE]":
                    self.done = True
                    continue
                event = json.loads(text[6:])
                self.events.append(event)
                yield event
        assert buf == b"", "the stream ended inside an event: %r" % buf
        assert self.done, "no [DONE]: %r" % self.raw[-300:]

    def next(self):
        """The next event, or None at the end."""
        if not hasattr(self, "it"):
            self.it = iter(self)
        return next(self.it, None)

    def finish(self):
        """Reads to the end. (text, token ids, finish_reason)."""
        if hasattr(self, "it"):
            for _ in self.it:
                pass
        else:
            for _ in self:
                pass
        self.conn.close()
        return self.result()

    def result(self):
        text, ids, reasons = "", [], []
        for e in self.events:
            assert "error" not in e, e
            for c in e["choices"]:
                text += c["text"] if "text" in c else c["delta"].get("content") or ""
                ids += c.get("token_ids") or []
                if c["finish_reason"] is not None:
                    reasons.append(c["finish_reason"])
        assert len(reasons) == 1, reasons
        return text, ids, reasons[0]

    def close(self, reset=False):
        self.conn.close(reset)
