"""/v1/embeddings: shapes of inputs and answers, what is refused, real clients, and that it does not disturb generation."""
import base64
import math
import struct
import threading

import openai
import pytest

import server as sv
import wire

PATH = "/v1/embeddings"


def ask(s, input, **kw):
    r = s.post(PATH, {"model": s.name, "input": input, **kw})
    assert r.status == 200, r
    return r.json()


def vectors(s, input, **kw):
    return [d["embedding"] for d in ask(s, input, **kw)["data"]]


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


def close(a, b):
    return len(a) == len(b) and max(abs(x - y) for x, y in zip(a, b)) < 1e-6


def test_form(server):
    r = ask(server, ["the red inn", "the inn"])
    assert r["object"] == "list" and r["model"] == "tiny" and r["id"].startswith("embd-")
    assert [(d["object"], d["index"]) for d in r["data"]] == [("embedding", 0), ("embedding", 1)]
    n = sum(server.post("/tokenize", {"prompt": p}).json()["count"] for p in ("the red inn", "the inn"))
    assert r["usage"]["prompt_tokens"] == r["usage"]["total_tokens"] == n
    for d in r["data"]:
        assert len(d["embedding"]) == 64 and abs(math.sqrt(dot(d["embedding"], d["embedding"])) - 1) < 1e-5


def test_shapes_of_input(server):
    ids = [server.post("/tokenize", {"prompt": p}).json()["tokens"] for p in ("the red inn", "the inn")]
    want = vectors(server, ["the red inn", "the inn"])
    assert not close(*want)
    for a, b in zip(want, vectors(server, ids)):
        assert close(a, b)
    assert close(want[0], vectors(server, "the red inn")[0])
    assert close(want[0], vectors(server, ids[0])[0])
    assert close(want[1], vectors(server, [ids[0], "the inn"])[1])


def test_base64_is_the_same(server):
    want = vectors(server, ["a", "bc", "def"])
    for w, text in zip(want, vectors(server, ["a", "bc", "def"], encoding_format="base64")):
        raw = base64.b64decode(text, validate=True)
        assert close(w, struct.unpack("<%df" % (len(raw) // 4), raw))


def test_batches_change_nothing(server):
    """Alone, among others, at the side of generations, cached or not: the same vector."""
    want = vectors(server, "the red inn")[0]
    assert close(want, vectors(server, "the red inn")[0])
    streams = [server.stream("x%d" % i, max_tokens=200, ignore_eos=True) for i in range(4)]
    many = vectors(server, ["n %d" % i for i in range(100)] + ["the red inn"])
    assert len(many) == 101 and close(want, many[100])
    alone = server.complete(max_tokens=16, ignore_eos=True)["choices"][0]["text"]
    for s in streams:
        s.finish()
    vectors(server, "other")
    assert server.complete(max_tokens=16, ignore_eos=True)["choices"][0]["text"] == alone


def test_many_and_long(server):
    """Answers that are written on a thread; inputs as long as the model takes, which is one more than a prompt may have."""
    assert len(vectors(server, ["n %d" % i for i in range(2048)])) == 2048
    assert len(vectors(server, [[5] * 4096])[0]) == 64
    r = server.post(PATH, {"input": [[5] * 4097]})
    assert r.status == 400 and "maximum context length is 4096" in r.error()["message"]
    assert close(vectors(server, [[6] * 10 + [5] * 100], truncate_prompt_tokens=100)[0], vectors(server, [[5] * 100])[0])
    assert len(vectors(server, [[5] * 9000], truncate_prompt_tokens=-1)[0]) == 64


@pytest.mark.parametrize("body, param", [
    ({}, "input"), ({"input": None}, "input"), ({"input": ""}, "input"), ({"input": []}, "input"), ({"input": [""]}, "input"), ({"input": ["a", ""]}, "input"),
    ({"input": [[]]}, "input"), ({"input": {}}, "input"), ({"input": 5}, "input"), ({"input": [1.5]}, "input"), ({"input": [-1]}, "input"), ({"input": [10 ** 6]}, "input"),
    ({"input": [2 ** 70]}, "input"), ({"input": ["a", None]}, "input"), ({"input": ["a"] * 2049}, "input"), ({"input": [["a"]]}, "input"), ({"input": [1, "a"]}, "input"),
    ({"input": "a", "encoding_format": "int8"}, "encoding_format"), ({"input": "a", "encoding_format": 5}, "encoding_format"),
    ({"input": "a", "priority": 1}, "priority"), ({"input": "a", "dimensions": 10}, "dimensions"), ({"input": "a", "dimensions": 0}, "dimensions"), ({"input": "a", "dimensions": "64"}, "dimensions"),
    ({"input": "a", "truncate_prompt_tokens": 0}, "truncate_prompt_tokens"), ({"input": "a", "model": "nosuch"}, "model"), ({"input": "a", "model": 5}, "model"),
    ({"messages": []}, "messages"), ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://127.0.0.1/"}}]}]}, "messages[0].content[0]"),
], ids=str)
def test_what_is_refused(server, body, param):
    r = server.post(PATH, body)
    assert r.status == (404 if body.get("model") == "nosuch" else 400) and r.error()["param"] == param, r


@pytest.mark.parametrize("more", [{"dimensions": 64}, {"dimensions": None, "encoding_format": None, "user": None}, {"user": "me"}, {"unknown": [1]}, {"priority": 0}, {"cache_salt": "s"}], ids=str)
def test_what_asks_for_nothing_more(server, more):
    assert close(vectors(server, "the inn", **more)[0], vectors(server, "the inn")[0])


def test_messages(server):
    m = [{"role": "user", "content": "the red inn"}]
    r = server.post(PATH, {"messages": m})
    assert r.status == 200
    ids = server.post("/tokenize", {"messages": m, "add_generation_prompt": False}).json()["tokens"]
    assert r.json()["usage"]["prompt_tokens"] == len(ids) and close(r.json()["data"][0]["embedding"], vectors(server, [ids])[0])


def test_clients_that_leave(server):
    for _ in range(6):
        c = server.conn()
        c.send(wire.request("POST", PATH, {"input": [[5 + i % 7] * 3000 for i in range(200)]}))
        c.close(reset=True)
    server.wait_idle()


def test_pooling_types(start, tiny):
    """mean and last differ, but for a single token; auto is mean where the file does not say."""
    got = {}
    for kind in ("auto", "mean", "last"):
        s = start(tiny, "--pooling-type", kind).ready()
        got[kind] = vectors(s, ["the red inn", [5]])
        s.stop()
    assert close(got["auto"][0], got["mean"][0]) and not close(got["mean"][0], got["last"][0])
    assert close(got["mean"][1], got["last"][1])


def test_survives_deaths(start, tiny):
    s = start(tiny).ready()
    want = vectors(s, ["the red inn"] * 3)
    out, stop = [], threading.Event()

    def work():
        while not stop.is_set():
            out.append(s.post(PATH, {"input": [[5] * 300] * 10 + ["the red inn"]}, timeout=60))

    t = threading.Thread(target=work)
    t.start()
    for kind in ("worker", "executor", "worker"):
        n = len(out)
        sv.wait_for("an answer", lambda: len(out) > n, 60)
        s.kill(kind)
    n = len(out)
    sv.wait_for("an answer", lambda: len(out) > n, 60)
    stop.set()
    t.join()
    assert all(r.status in (200, 503) for r in out), out
    assert all(close(r.json()["data"][10]["embedding"], want[0]) for r in out if r.status == 200)


def test_openai_client(server):
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="x", max_retries=0)
    r = client.embeddings.create(model="tiny", input=["the red inn", "the inn"])  # asks for base64 by itself
    assert [d.index for d in r.data] == [0, 1] and close(r.data[0].embedding, vectors(server, "the red inn")[0])
    f = client.embeddings.create(model="tiny", input="the inn", encoding_format="float")
    assert close(f.data[0].embedding, r.data[1].embedding) and r.usage.total_tokens > 0
    with pytest.raises(openai.BadRequestError) as e:
        client.embeddings.create(model="tiny", input="x", dimensions=3)
    assert e.value.param == "dimensions"


@pytest.mark.real
def test_meaning(real):
    """Of a real model, crude as the means of its states are: what is alike lies closer."""
    a, b, c = vectors(real, ["The cat sleeps on the warm sofa.", "A kitten naps on the cosy couch.", "int main(void) { return errno; }"])
    assert dot(a, b) > dot(a, c) + 0.05
