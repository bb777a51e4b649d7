"""Responses and Messages on the wire, with a random model: every way a request can end, also under sanitizers."""
import json

import pytest

import wire

pytestmark = pytest.mark.san
TOOL = {"name": "f", "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}}
KINDS = {
    "responses": ("/v1/responses", {"input": "hello there", "max_output_tokens": 12, "tools": [{"type": "function", **TOOL}]},
                  {"type": "function", "name": "f"}, "response.output_text.delta"),
    "messages": ("/v1/messages", {"messages": [{"role": "user", "content": "hello there"}], "max_tokens": 12,
                                  "tools": [{"name": "f", "input_schema": TOOL["parameters"]}]}, {"type": "tool", "name": "f"}, "content_block_delta"),
}


@pytest.fixture(params=KINDS)
def kind(request):
    path, body, choice, delta = KINDS[request.param]
    none = "none" if request.param == "responses" else {"type": "none"}
    return path, {"model": "tiny", "temperature": 0, "ignore_eos": True, "tool_choice": none, **body}, choice, delta


def events_of(text):
    """(name, data) of each; comments are left out."""
    out = []
    for block in text.split("\n\n"):
        lines = [l for l in block.split("\n") if l and not l.startswith(":")]
        if not lines:
            continue
        name, data = lines
        assert name.startswith("event: ") and data.startswith("data: ")
        data = json.loads(data[6:])
        assert data["type"] == name[7:]
        out.append((data["type"], data))
    return out


def test_plain_and_streamed(server, kind):
    path, body, _, delta = kind
    whole = server.post(path, body)
    assert whole.status == 200, whole
    r = server.post(path, {**body, "stream": True})
    assert r.status == 200 and r.headers["content-type"].startswith("text/event-stream")
    events = events_of(r.text())
    said = "".join(e["delta"] if isinstance(e["delta"], str) else e["delta"]["text"] for name, e in events if name == delta)
    doc = whole.json()
    assert said == (doc["output"][0]["content"][0]["text"] if "output" in doc else doc["content"][0]["text"])
    assert doc.get("status", doc.get("stop_reason")) in ("incomplete", "max_tokens")


def test_a_call(server, kind):
    path, body, choice, _ = kind
    body = {**body, "tool_choice": choice, "ignore_eos": False, "max_output_tokens" if "input" in body else "max_tokens": 40}
    doc = server.post(path, body).json()
    args = doc["output"][0]["arguments"] if "output" in doc else json.dumps(doc["content"][0]["input"])
    assert isinstance(json.loads(args)["n"], int), doc
    events = events_of(server.post(path, {**body, "stream": True}).text())
    said = "".join(e["delta"] if isinstance(e["delta"], str) else e["delta"]["partial_json"] for name, e in events if name.endswith("delta") and name != "message_delta")
    assert json.loads(said) == json.loads(args)


def test_client_goes_away(server, kind):
    path, body, _, _ = kind
    limit = "max_output_tokens" if "input" in body else "max_tokens"
    for stream in (False, True):
        for reset in (False, True):
            with server.conn() as c:
                c.send(wire.request("POST", path, {**body, limit: 3000, "stream": stream}))
                if stream:
                    c.head()
                    c.fill()
                c.close(reset)
    server.wait_idle()


def test_errors(server, kind):
    path, body, _, _ = kind
    for change, status in (({"temperature": -1}, 400), ({"model": "other"}, 404), ({"messages": 3, "input": 3}, 400), ({"tools": 3}, 400), ({"stream": 3}, 400)):
        r = server.post(path, {**body, **change})
        assert r.status == status and r.json()["error"]["message"], r
        assert (r.json().get("type") == "error") == (path == "/v1/messages")
    for raw in (b"", b"{", b"[]", b"\xff", b'{"input":"\\ud800","messages":[{"role":"user","content":"\\ud800"}],"max_tokens":1}'):
        r = server.post(path, raw)
        assert r.status == 400 and r.json()["error"]["message"], r


def test_counts(server, kind):
    path, body, _, _ = kind
    n = server.post(path + ("/input_tokens" if "input" in body else "/count_tokens"), body).json()["input_tokens"]
    usage = server.post(path, body).json()["usage"]
    assert n == usage["input_tokens"] + usage.get("cache_read_input_tokens", 0)
    r = server.post(path + ("/input_tokens" if "input" in body else "/count_tokens"), {**body, "temperature": -1})
    assert r.status == 400


def test_large_bodies_are_prepared_aside(server, kind):
    """Beyond what the loop does itself; with a client that leaves meanwhile."""
    path, body, _, _ = kind
    text = "word " * 3000
    big = {**body, **({"input": text} if "input" in body else {"messages": [{"role": "user", "content": text}]}), "metadata": {}, "instructions": "x" * 20000}
    for _ in range(4):
        with server.conn() as c:
            c.send(wire.request("POST", path, big))
            c.close(True)
    r = server.post(path, big)
    assert r.status in (200, 400), r
    server.wait_idle()
