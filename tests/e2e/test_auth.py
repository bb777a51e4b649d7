"""API keys: who gets in, that no key shows anywhere, and new keys while it serves."""
import os
import signal
import threading
import time

import anthropic
import openai
import pytest

import server as sv
import wire

pytestmark = pytest.mark.san
TEXT = "/v1/completions"
CHAT = "/v1/chat/completions"
OPEN = ("/health", "/ready", "/live", "/ping")
GUARDED = [("GET", "/v1/models"), ("GET", "/v1/models/tiny"), ("POST", TEXT), ("POST", CHAT), ("POST", "/v1/messages"), ("POST", "/v1/responses"), ("POST", "/v1/embeddings"),
           ("POST", "/tokenize"), ("POST", "/detokenize"), ("GET", "/metrics"), ("GET", "/version"), ("GET", "/load"), ("GET", "/openapi.json"), ("GET", "/"), ("GET", "/nosuch"),
           ("DELETE", "/v1/models"), ("POST", "/healthz"), ("GET", "/health/"), ("GET", "//health"), ("GET", "/v1/../health"), ("GET", "/ping%00"), ("GET", "/v1/models?x=/health"),
           ("HEAD", "/metrics"), ("BREW", "/v1/models")]
KEY, OTHER = "sk-first-4711", "sk-second-0815"


@pytest.fixture(scope="module")
def guarded(tiny):
    with sv.Server(tiny, "--api-key", "%s,%s" % (KEY, OTHER), frontends=2, key=KEY) as s:
        s.ready()
        yield s
        s.wait_idle()


def bearer(key):
    return ["Authorization: Bearer " + key]


@pytest.mark.parametrize("method, path", GUARDED)
def test_nothing_answers_without_a_key(guarded, method, path):
    for headers in ((), bearer("wrong"), ["x-api-key: " + KEY + "x"], ["Authorization: Basic " + KEY], bearer("")):
        with wire.Conn(guarded.host, guarded.port) as c:
            r = c.ask(method, path, {} if method == "POST" else None, headers)
            if method == "BREW":
                assert r.status == 400, "llhttp knows no such method; nothing is told before that"
                continue
            assert r.status == 401 and r.headers["www-authenticate"].startswith("Bearer") and r.headers["x-request-id"], r
            assert KEY not in r.text() and "wrong" not in r.text()
            if method == "HEAD":
                continue
            if path.startswith("/v1/messages"):
                assert r.json()["type"] == "error" and r.json()["error"]["type"] == "authentication_error", r
            else:
                assert r.error()["code"] == 401


@pytest.mark.parametrize("path", OPEN)
def test_health_needs_none(guarded, path):
    for method in ("GET", "HEAD"):
        with wire.Conn(guarded.host, guarded.port) as c:
            assert c.ask(method, path).status == 200


def test_preflight_needs_none(guarded):
    with wire.Conn(guarded.host, guarded.port) as c:
        for path in (CHAT, "/v1/models", "*"):
            assert c.ask("OPTIONS", path, headers=["Origin: http://a.example", "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: authorization"]).status == 204


@pytest.mark.parametrize("headers", [bearer(KEY), bearer(OTHER), ["authorization: bearer " + OTHER], ["x-api-key: " + KEY], ["X-Api-Key: " + OTHER, "Authorization: Bearer other"]])
def test_each_key_and_each_way(guarded, headers):
    with wire.Conn(guarded.host, guarded.port) as c:
        for method, path in GUARDED[:13]:
            assert c.ask(method, path, {} if method == "POST" else None, headers).status not in (401, 403)


def test_clients(guarded):
    good = openai.OpenAI(base_url=guarded.url + "/v1", api_key=OTHER, max_retries=0)
    assert good.models.list().data[0].id == "tiny"
    with pytest.raises(openai.AuthenticationError) as e:
        openai.OpenAI(base_url=guarded.url + "/v1", api_key="nope", max_retries=0).models.list()
    assert "API key" in e.value.message and e.value.request_id
    with pytest.raises(anthropic.AuthenticationError) as e:
        anthropic.Anthropic(base_url=guarded.url, api_key="nope", max_retries=0).messages.create(model="tiny", max_tokens=1, messages=[{"role": "user", "content": "x"}])
    assert e.value.body["error"]["type"] == "authentication_error"


def test_a_body_without_a_key_is_not_read(guarded):
    """32 MB of a stranger are refused by their head, and never held."""
    pids = guarded.kids("frontend")
    before = sum(sv.rss_mib(p) for p in pids)
    strangers = []
    for i in range(30):
        c = wire.Conn(guarded.host, guarded.port, timeout=20 * sv.SLOW)
        c.send(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n" + (b"Transfer-Encoding: chunked\r\n\r\n1000000\r\n" if i % 2 else b"Content-Length: 32000000\r\n\r\n"))
        strangers.append(c)
    for c in strangers:
        r = c.answer()
        assert r.status == 401 and r.closes(), r
        c.try_send(b" " * (2 << 20))
    assert sum(sv.rss_mib(p) for p in pids) < before + 30 * sv.SLOW
    for c in strangers:
        c.close()
    with wire.Conn(guarded.host, guarded.port) as c:
        c.send(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1000\r\n\r\n")
        r = c.answer()
        assert r.status == 401 and 100 not in r.interim


def test_a_connection_stays_when_there_is_no_body(guarded):
    with wire.Conn(guarded.host, guarded.port) as c:
        assert c.ask("GET", "/v1/models").status == 401
        assert c.ask("GET", "/v1/models", headers=bearer(KEY)).status == 200
        assert c.ask("GET", "/v1/models").status == 401, "a key counts for its request only"


def test_pipelined_requests_are_each_asked(guarded):
    with wire.Conn(guarded.host, guarded.port) as c:
        c.send(wire.request("GET", "/v1/models", headers=bearer(KEY)) + wire.request("GET", "/v1/models") + wire.request("GET", "/version", headers=bearer(OTHER)))
        assert [c.answer("GET").status for _ in range(3)] == [200, 401, 200]


def traces(s):
    """Everything that others could see of it."""
    out = s.text().encode()
    for pid in s.pids():
        out += sv.read_proc(pid, "cmdline") + sv.read_proc(pid, "environ").replace(b"E2E_SERVER_ID", b"")
    return out


def test_keys_show_nowhere(start, tiny, tmp_path):
    f = tmp_path / "keys"
    f.write_text("in-a-file-1\n")
    s = start(tiny, "--api-key=on-the-line-2", "--api-key-file", str(f), "--log-level", "debug", frontends=2, key="on-the-line-2", env={"VLLM_API_KEY": "not-used-4"}).ready()
    s.complete()
    assert s.ask("GET", "/v1/models", headers=["x-api-key: in-a-file-1"]).status == 200
    s.p.send_signal(signal.SIGHUP)
    sv.wait_for("SIGHUP is heard", lambda: s.lines("SIGHUP"))
    seen = traces(s) + s.get("/metrics").body
    for key in (b"in-a-file-1", b"on-the-line-2", b"not-used-4"):
        assert key not in seen
    env = start(tiny, env={"SLUICE_API_KEY": "environment-3"}, key="environment-3").ready()
    assert b"environment-3" not in traces(env)
    vllm = start(tiny, env={"VLLM_API_KEY": "environment-5"}, key="environment-5").ready()
    assert b"environment-5" not in traces(vllm)
    with wire.Conn(vllm.host, vllm.port) as c:
        assert c.ask("GET", "/version").status == 401


@pytest.mark.parametrize("flags, says", [
    (["--api-key", "a,,b"], "key 2: empty"), (["--api-key", "a b"], "visible ASCII"), (["--api-key-file", "/nosuch/keys"], "--api-key-file /nosuch/keys: No such file"),
    (["--api-key-file", "/dev/null"], "not a plain file"), (["--api-key-file", "/etc"], "not a plain file"), (["--api-key", "k" * 600], "at most 512")])
def test_bad_keys_are_a_start_error(start, tiny, flags, says):
    s = start(tiny, *flags)
    assert s.wait() == 2 and says in s.text() and "kkkk" not in s.text(), s.text()


# ---- new keys while it serves ----

def hup(s, word):
    n = len(s.lines("SIGHUP", word))
    s.p.send_signal(signal.SIGHUP)
    sv.wait_for("SIGHUP: %s" % word, lambda: len(s.lines("SIGHUP", word)) > n)


def status(s, key):
    with wire.Conn(s.host, s.port) as c:
        return c.ask("GET", "/v1/models", headers=bearer(key)).status


def everywhere(s, key, want, times=12):
    """Connections land on any frontend."""
    return all(status(s, key) == want for _ in range(times))


def test_new_keys_at_sighup(start, tiny, tmp_path):
    f = tmp_path / "keys"
    f.write_text("old\nboth\n")
    s = start(tiny, "--api-key", "fixed", "--api-key-file", str(f), frontends=4, key="both").ready()
    before = s.kids("")
    stream = s.stream(max_tokens=3000, ignore_eos=True)
    assert stream.next()
    f.write_text("# rotated\r\nboth\r\nnew\r\n")
    assert everywhere(s, "old", 200) and everywhere(s, "new", 401)
    hup(s, "3 API keys")
    sv.wait_for("all frontends know", lambda: everywhere(s, "old", 401) and everywhere(s, "new", 200))
    assert everywhere(s, "fixed", 200) and everywhere(s, "both", 200)
    assert stream.next(), "what runs goes on"
    for bad, why in (("", "it holds no key"), ("a b\n", "visible ASCII"), (None, "No such file")):
        f.unlink() if bad is None else f.write_text(bad)
        hup(s, why)
        assert everywhere(s, "new", 200, 4) and everywhere(s, "old", 401, 4), "a bad file changes nothing"
    assert s.kids("") == before
    text, ids, why = stream.finish()
    assert len(text) > 0 and why == "length"
    # A frontend that is started again has the newest keys, not the first ones, and not the bad ones.
    for n in range(4):
        s.kill("frontend", n=0)
    sv.wait_for("four again", lambda: len(s.kids("frontend")) == 4)
    s.ready()
    assert everywhere(s, "new", 200) and everywhere(s, "old", 401)


def test_no_request_is_dropped_by_sighup(start, tiny, tmp_path):
    f = tmp_path / "keys"
    f.write_text("always\n")
    s = start(tiny, "--api-key-file", str(f), frontends=2, key="always").ready()
    stop, wrong, n = threading.Event(), [], [0]

    def client(i):
        with s.conn(timeout=60) as c:
            while not stop.is_set():
                r = c.ask("POST", TEXT, {"model": "tiny", "prompt": "n %d" % i, "max_tokens": 3})
                n[0] += 1
                if r.status != 200:
                    wrong.append(r)
    threads = [threading.Thread(target=client, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for i in range(20):
        f.write_text("always\nkey-%d\n" % i)
        s.p.send_signal(signal.SIGHUP)
        time.sleep(0.02)
    stop.set()
    for t in threads:
        t.join()
    assert not wrong and n[0] > 20, (wrong[:3], n)
    sv.wait_for("the last file counts", lambda: everywhere(s, "key-19", 200, 4))


def test_sighup_without_files(start, tiny):
    s = start(tiny, frontends=2).ready()
    hup(s, "no file")
    os.kill(s.kids("frontend")[0], signal.SIGHUP)
    os.kill(s.kids("executor")[0], signal.SIGHUP)
    assert s.complete()["choices"]


def test_a_frontend_that_is_stopped_learns_the_keys_later(start, tiny, tmp_path):
    f = tmp_path / "keys"
    f.write_text("old\n")
    s = start(tiny, "--api-key-file", str(f), key="old").ready()
    pid = s.kids("frontend")[0]
    os.kill(pid, signal.SIGSTOP)
    f.write_text("new\n")
    hup(s, "1 API key")
    os.kill(pid, signal.SIGCONT)
    sv.wait_for("the new key counts", lambda: status(s, "new") == 200 and status(s, "old") == 401)
    s.key = "new"
