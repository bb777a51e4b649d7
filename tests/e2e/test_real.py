"""The default model: right answers, and crashes under a real load of work."""
import openai
import pytest

import crash
import server as sv

pytestmark = pytest.mark.real


def test_it_knows(real):
    assert real.complete("The capital of France is", max_tokens=1)["choices"][0]["text"] == " Paris"
    with openai.OpenAI(base_url=real.url + "/v1", api_key="any", max_retries=0) as c:
        r = c.chat.completions.create(model="smollm2", messages=[{"role": "user", "content": "What is 2+2?"}], temperature=0, max_tokens=40)
    assert "4" in r.choices[0].message.content
    assert r.choices[0].finish_reason == "stop"


def test_it_goes_on_with_a_text(real):
    text = real.complete("1, 2, 3, 4, 5,", max_tokens=12)["choices"][0]["text"]
    assert text.startswith(" 6, 7, 8"), text


def test_it_streams_the_same(real):
    for path in ("/v1/completions", "/v1/chat/completions"):
        prompt = "Name three colours." if path == "/v1/completions" else [{"role": "user", "content": "Name three colours."}]
        c = real.complete(prompt, path, max_tokens=48)["choices"][0]
        assert real.stream(prompt, path, max_tokens=48).finish()[0] == (c["text"] if path == "/v1/completions" else c["message"]["content"])


def test_rare_characters_come_whole(real):
    for what in ("\U0001fae0", "\u9f9c", "\U0001f469\u200d\U0001f469\u200d\U0001f466"):
        m = [{"role": "user", "content": "Repeat exactly: %s %s %s" % (what, what, what)}]
        for n in (1, 2, 3, 5, 8, 24):
            c = real.chat(m, max_tokens=n)["choices"][0]["message"]["content"]
            assert real.stream(m, "/v1/chat/completions", max_tokens=n).finish()[0] == c


def test_tokenizer_of_the_model(real):
    r = real.post("/tokenize", {"model": "smollm2", "prompt": "Hello, world!"}).json()
    assert r["tokens"] == [19556, 28, 905, 17], r
    chat = real.post("/tokenize", {"model": "smollm2", "messages": [{"role": "user", "content": "hi"}]}).json()["tokens"]
    assert chat[0] == 1 and chat.count(1) == 3 and chat.count(2) == 2, "the template's own system turn, the user's, and the answer's beginning"


def test_sampling_follows_the_seed(real):
    kw = {"temperature": 0.8, "top_p": 0.95, "top_k": 40, "max_tokens": 24, "seed": 11}
    assert real.complete("Once upon a time", **kw)["choices"][0]["text"] == real.complete("Once upon a time", **kw)["choices"][0]["text"]
    assert real.complete("Once upon a time", **kw)["choices"][0]["text"] != real.complete("Once upon a time", **{**kw, "seed": 12})["choices"][0]["text"]


def test_logprobs_are_probable(real):
    r = real.chat("What is the capital of France?", max_tokens=8, logprobs=True, top_logprobs=5)
    for t in r["choices"][0]["logprobs"]["content"]:
        assert -3.5 < t["logprob"] <= 0
        assert t["bytes"] == list(t["token"].encode())


def test_batch_is_as_alone(real):
    want = {i: real.complete("Fact number %d:" % i, max_tokens=16, return_token_ids=True)["choices"][0]["token_ids"] for i in range(6)}
    streams = [real.stream("Fact number %d:" % i, max_tokens=16, return_token_ids=True) for i in list(range(6)) * 2]
    for i, s in zip(list(range(6)) * 2, streams):
        assert s.finish()[1] == want[i]


def test_streams_go_on_after_kills(real):
    """The quick form of long_crash.py: a kill of each kind among greedy and among sampled streams, eight of them."""
    matrix, rng = crash.Matrix(8, 1, 8, 40), crash.seeded()
    matrix.undisturbed(real)
    watch = crash.Watch(real)
    for phase in ("decode", "sampling"):
        for kind in crash.KINDS:
            assert matrix.round(real, phase, kind, "kill", rng, watch=watch)
    print(matrix.table())
