"""Constrained outputs of the default model through HTTP: at a high temperature everything that comes is what was asked for; streams,
choices, small KV caches, killed workers and tight limits change nothing of that."""
import concurrent.futures
import json
import re

import jsonschema
import pytest

import server as sv

CHAT = "/v1/chat/completions"
ASK = "Invent a person who works at a hospital."
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 16},
        "age": {"type": "integer", "minimum": 18, "maximum": 99},
        "role": {"enum": ["nurse", "doctor", "cook"]},
        "score": {"type": "number"},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 8}, "maxItems": 2},
        "boss": {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}},
                                            "required": ["name"], "additionalProperties": False}]},
    },
    "required": ["name", "age", "role", "score", "tags", "boss"],
    "additionalProperties": False,
}
REGEX = r"(Mr|Ms)\. [A-Z][a-z]{2,11}, room [1-9][0-9]?(, [\w ]{3,20})?\."
CHOICES = ["nurse", "doctor", "head nurse", "head of the kitchen", "größter Chef 🎉"]
ARITHMETIC = 'root ::= term ((" + " | " - ") term){1,4}\nterm ::= [0-9]{1,4} | "(" root ")"\n'


def is_arithmetic(text):
    """By the grammar: inner parentheses become a number until none are left."""
    total, inner = r"\d{1,4}(?: [+-] \d{1,4}){1,4}", None
    while inner != text:
        inner, text = text, re.sub(r"\(%s\)" % total, "1", text)
    assert re.fullmatch(total, text), text


def is_person(text):
    jsonschema.validate(json.loads(text), PERSON)


def is_object(text):
    assert isinstance(json.loads(text), dict)


def matches(text):
    assert re.fullmatch(REGEX, text)


def is_choice(text):
    assert text in CHOICES


KINDS = {
    "regex": ({"guided_regex": REGEX}, matches),
    "choice": ({"guided_choice": CHOICES}, is_choice),
    "schema": ({"response_format": {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": PERSON}}}, is_person),
    "object": ({"response_format": {"type": "json_object"}}, is_object),
    "grammar": ({"guided_grammar": ARITHMETIC}, is_arithmetic),
}


def body(kind, **kw):
    return {"model": "smollm2", "messages": [{"role": "user", "content": ASK}], "temperature": 1.5, "max_tokens": 100, **KINDS[kind][0], **kw}


def generate(server, kind, n, seed, **kw):
    """The texts of n choices, each whole and valid."""
    _, check = KINDS[kind]
    r = server.post(CHAT, body(kind, n=n, seed=seed, **kw), timeout=300)
    assert r.status == 200, r
    texts = [c["message"]["content"] for c in r.json()["choices"]]
    for text in texts:
        check(text)
    return texts


@pytest.mark.real
@pytest.mark.parametrize("kind", KINDS)
def test_a_hundred_outputs_validate(real, kind):
    """Ten of what takes long and is little but repetition."""
    n = 5 if kind in ("object", "grammar") else 50
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        texts = [t for part in pool.map(lambda seed: generate(real, kind, n, seed), range(2)) for t in part]
    assert len(texts) == 2 * n
    assert len(set(texts)) > (1 if kind == "choice" else n)


def joined(stream):
    """{index: text} of a stream's choices."""
    texts = {}
    for event in stream:
        for c in event["choices"]:
            texts[c["index"]] = texts.get(c["index"], "") + (c["delta"].get("content") or "")
    return texts


@pytest.mark.real
@pytest.mark.parametrize("kind", ["schema", "choice"])
def test_streams_and_choices_say_the_same(real, kind):
    """The same seed: four choices at once, streamed or not, in two requests at a time."""
    whole = generate(real, kind, 4, 7)
    stream = real.stream(path=CHAT, **body(kind, n=4, seed=7))
    texts = joined(stream)
    stream.close()
    assert [texts[i] for i in range(4)] == whole
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda _: generate(real, kind, 4, 7), range(2))) == [whole, whole]


@pytest.mark.real
def test_outputs_are_whole_when_the_limit_can_hold_them(real):
    """The shortest person takes this many bytes, and no byte more than a token; with so many tokens each output is whole."""
    least = len(json.dumps({"name": "x", "age": 18, "role": "cook", "score": 0, "tags": [], "boss": None}))
    for limit in (least, least + 7):
        generate(real, "schema", 8, limit, max_tokens=limit)
    # Less cannot be enough: the output is cut, and says so.
    r = real.post(CHAT, body("schema", max_tokens=12, seed=1)).json()["choices"][0]
    assert r["finish_reason"] == "length" and r["message"]["content"].lstrip().startswith("{")


@pytest.mark.real
def test_preemption_changes_nothing(real, start):
    """A KV cache for two or three of eight requests: they are put aside and begun again, and say what they would have said."""
    def ask(server, seed):
        return generate(server, "schema", 1, seed)

    want = [ask(real, seed) for seed in range(8)]
    small = start(sv.REAL_MODEL, "--num-gpu-blocks-override", "16", "--max-model-len", "256", name="smollm2").ready()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda seed: ask(small, seed), range(8))) == want
    assert small.metric("vllm:num_preemptions_total") > 0
    small.wait_idle()


@pytest.mark.real
def test_a_killed_worker_changes_nothing(start):
    s = start(sv.REAL_MODEL, "--kv-cache-memory-bytes", "256M", name="smollm2").ready()
    want = [generate(s, "schema", 4, seed) for seed in range(3)]
    for _ in range(2):
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            got = [pool.submit(generate, s, "schema", 4, seed) for seed in range(3)]
            sv.wait_for("it runs", lambda: s.metric("vllm:num_requests_running") > 3)
            s.kill("worker")
            assert [g.result() for g in got] == want
        s.ready()
    s.wait_idle()
