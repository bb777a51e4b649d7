"""/openapi.json: it is whole, it is true of real requests and answers, and schemathesis finds nothing that it does not say."""
import json
import re

import jsonschema
import pytest

import openapi
import server as sv

CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def server(tiny):
    with sv.Server(tiny, *openapi.FLAGS, frontends=2, name="tiny,second") as s:
        s.name = "tiny"
        s.ready()
        yield s
        s.wait_idle()


@pytest.fixture(scope="module")
def doc(server):
    r = server.get("/openapi.json")
    assert r.status == 200 and r.headers["content-type"] == "application/json"
    return r.json()


def schema_of(doc, name):
    return {"$ref": "#/components/schemas/" + name, "components": doc["components"], "$schema": "https://json-schema.org/draft/2020-12/schema"}


def fits(doc, name, value):
    jsonschema.Draft202012Validator(schema_of(doc, name)).validate(value)


def refs(node):
    if isinstance(node, dict):
        for k, v in node.items():
            if k == "$ref":
                yield v
            else:
                yield from refs(v)
    elif isinstance(node, list):
        for v in node:
            yield from refs(v)


def test_it_is_whole(doc):
    assert doc["openapi"].startswith("3.1") and doc["info"]["version"] and doc["servers"] == [{"url": "/"}] and "security" not in doc
    for ref in refs(doc):
        node = doc
        for part in ref[2:].split("/"):
            node = node[part]
    for name, schema in doc["components"]["schemas"].items():
        jsonschema.Draft202012Validator.check_schema(schema)
    ids = [o["operationId"] for p in doc["paths"].values() for o in p.values()]
    assert len(ids) == len(set(ids))


def test_every_route_is_in_it(doc):
    with open(sv.ROOT + "/frontend/routes.c") as f:
        routes = re.findall(r'\{METHOD_(\w+), "([^"]+)", \w+\}', f.read())
    assert len(routes) > 15
    said = {(m.upper(), p) for p, o in doc["paths"].items() for m in o}
    assert said == {(m, p + ("{id}" if p.endswith("/") else "")) for m, p in routes}


def test_every_operation_says_what_it_answers(doc):
    for path, operations in doc["paths"].items():
        for method, o in operations.items():
            statuses = set(o["responses"])
            assert {"400", "404", "405", "408", "413", "415", "431", "503"} <= statuses
            assert ("401" in statuses) == (path not in ("/health", "/ready", "/live", "/ping"))
            assert ("200" in statuses) == (not path.startswith("/v1/responses/{id}"))
            if method == "post" and path != "/ping" and "{id}" not in path:
                assert "$ref" in o["requestBody"]["content"]["application/json"]["schema"]


def test_parameters_come_from_the_table(doc):
    chat, text = (doc["components"]["schemas"][n]["properties"] for n in ("ChatRequest", "CompletionRequest"))
    with open(sv.ROOT + "/frontend/params.c") as f:
        rows = re.findall(r'^\t(BOOL|WHOLE|NUMBER|CUSTOM)\("(\w+)", (BOTH|CHAT|TEXT)', f.read(), re.M)
    assert len(rows) > 30
    for kind, name, where in rows:
        for endpoint, properties in (("CHAT", chat), ("TEXT", text)):
            if where in ("BOTH", endpoint):
                assert properties[name], "%s has no schema in openapi_schemas.c" % name
    assert chat["model"]["enum"] == ["tiny", "second", None] and chat["temperature"] == {"type": ["number", "null"], "minimum": 0, "maximum": 100}


REQUESTS = [
    ("ChatRequest", CHAT, {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2, "temperature": 0}),
    ("ChatRequest", CHAT, {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "hi"}]}], "max_completion_tokens": 2, "stop": ["a"], "logprobs": True,
                           "top_logprobs": 2, "n": 1, "seed": 7, "user": "u", "stream_options": None, "tool_choice": "none", "tools": [], "logit_bias": {"5": -1}}),
    ("CompletionRequest", "/v1/completions", {"model": "second", "prompt": "x", "max_tokens": 1, "logprobs": 1, "echo": True}),
    ("CompletionRequest", "/v1/completions", {"prompt": [5, 6], "max_tokens": 1, "stop_token_ids": [1], "top_k": -1, "min_p": 0.1}),
    ("ResponsesRequest", "/v1/responses", {"model": "tiny", "input": "x", "max_output_tokens": 2, "instructions": "i", "metadata": {"a": "b"}, "store": False}),
    ("ResponsesRequest", "/v1/responses", {"input": [{"role": "user", "content": [{"type": "input_text", "text": "x"}]}], "max_output_tokens": 2}),
    ("MessagesRequest", "/v1/messages", {"model": "tiny", "max_tokens": 2, "system": "s", "messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}], "stop_sequences": ["q"]}),
    ("CountTokensRequest", "/v1/messages/count_tokens", {"messages": [{"role": "user", "content": "x"}]}),
    ("TokenizeRequest", "/tokenize", {"prompt": "x", "add_special_tokens": False}),
    ("TokenizeRequest", "/tokenize", {"messages": [{"role": "user", "content": "x"}]}),
    ("DetokenizeRequest", "/detokenize", {"tokens": [5]}),
    ("ChatRequest", CHAT + "/render", {"messages": [{"role": "user", "content": "hi"}]}),
    ("CompletionRequest", "/v1/completions/render", {"prompt": ["a", "b"]}),
]


@pytest.mark.parametrize("name, path, body", REQUESTS, ids=lambda v: v if isinstance(v, str) else "")
def test_real_requests_and_answers_fit(server, doc, name, path, body):
    fits(doc, name, body)
    r = server.post(path, body)
    assert r.status == 200, r
    operation = doc["paths"][path]["post"]
    fits(doc, operation["responses"]["200"]["content"]["application/json"]["schema"]["$ref"].rsplit("/", 1)[1], r.json())
    assert operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith("/" + name)
    bad = server.post(path, {**body, "model": 5})
    with pytest.raises(jsonschema.ValidationError):
        fits(doc, name, {**body, "model": 5})
    fits(doc, doc["components"]["responses"][operation["responses"]["400"]["$ref"].rsplit("/", 1)[1]]["content"]["application/json"]["schema"]["$ref"].rsplit("/", 1)[1], bad.json())


def test_every_get_fits(server, doc):
    for path, operations in doc["paths"].items():
        if "get" not in operations or "200" not in operations["get"]["responses"]:
            continue
        r = server.get(path.replace("{id}", "tiny"))
        content = operations["get"]["responses"]["200"]["content"]
        assert r.status == 200 and r.headers["content-type"].split(";")[0] in content, (path, r)
        if "application/json" in content:
            fits(doc, content["application/json"]["schema"]["$ref"].rsplit("/", 1)[1], r.json())


def test_keys_and_root_path(start, tiny):
    s = start(tiny, "--api-key", "k", "--root-path", "/llm", name="*,shown", key="k").ready()
    s.name = "any"
    doc = s.get("/llm/openapi.json").json()
    assert doc["servers"] == [{"url": "/llm"}] and doc["security"] == [{"bearer": []}, {"apiKey": []}]
    assert doc["paths"]["/health"]["get"]["security"] == []
    assert doc["components"]["schemas"]["ChatRequest"]["properties"]["model"] == {"type": ["string", "null"], "examples": ["shown"]}
    with s.conn(headers=[]) as c:
        assert c.ask("GET", "/openapi.json").status == 401


def test_schemathesis(server, tmp_path):
    openapi.schemathesis(server, tmp_path, 2, "fuzzing", 150)
