"""The official OpenAI client, as people use it. The model is random: what is checked is form, counts and repeatability."""
import asyncio

import openai
import pytest

pytestmark = pytest.mark.san
HELLO = [{"role": "user", "content": "hello there"}]


@pytest.fixture
def client(server):
    with openai.OpenAI(base_url=server.url + "/v1", api_key="any", max_retries=0, timeout=60) as c:
        yield c


def chat(client, **kw):
    return client.chat.completions.create(**{"model": "tiny", "messages": HELLO, "max_tokens": 12, "temperature": 0, **kw})


def text(client, **kw):
    return client.completions.create(**{"model": "tiny", "prompt": "the red inn", "max_tokens": 12, "temperature": 0, **kw})


def test_models_are_listed(client):
    assert [m.id for m in client.models.list().data] == ["tiny"]
    assert client.models.retrieve("tiny").id == "tiny"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


def test_chat_answers(client):
    r = chat(client)
    assert r.object == "chat.completion" and r.model == "tiny" and r.id.startswith("chatcmpl-")
    c = r.choices[0]
    assert c.index == 0 and c.message.role == "assistant" and c.finish_reason in ("stop", "length")
    u = r.usage
    assert u.total_tokens == u.prompt_tokens + u.completion_tokens and 0 < u.completion_tokens <= 12


def test_completion_answers(client):
    r = text(client, extra_body={"ignore_eos": True})
    assert r.object == "text_completion" and r.id.startswith("cmpl-")
    assert r.choices[0].finish_reason == "length" and r.usage.completion_tokens == 12


def test_chat_streams_the_same(client):
    whole = chat(client)
    chunks = list(chat(client, stream=True, stream_options={"include_usage": True}))
    assert {c.object for c in chunks} == {"chat.completion.chunk"}
    assert len({(c.id, c.created, c.model) for c in chunks}) == 1
    assert chunks[0].choices[0].delta.role == "assistant"
    assert all(c.choices[0].delta.role is None for c in chunks[1:-1])
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == whole.choices[0].message.content
    reasons = [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason]
    assert reasons == [whole.choices[0].finish_reason]
    assert chunks[-1].choices == [] and chunks[-1].usage == whole.usage or chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_completion_streams_the_same(client):
    whole = text(client)
    chunks = list(text(client, stream=True))
    assert "".join(c.choices[0].text for c in chunks) == whole.choices[0].text
    assert all(c.usage is None for c in chunks)


def test_seed_repeats_and_matters(client):
    def drawn(seed):
        return text(client, temperature=1.0, seed=seed, max_tokens=32, extra_body={"return_token_ids": True, "ignore_eos": True}).choices[0].token_ids

    assert drawn(7) == drawn(7)
    assert len({tuple(drawn(s)) for s in range(8)}) == 8
    free = [text(client, temperature=1.0, max_tokens=32).choices[0].text for _ in range(4)]
    assert len(set(free)) == 4, "without a seed each request has one of its own"


def test_stop_string_ends_the_answer(client):
    whole = text(client, max_tokens=40, extra_body={"ignore_eos": True}).choices[0].text
    stop = next(whole[i:i + 2] for i in range(8, len(whole) - 2) if "\ufffd" not in whole[i:i + 2])
    want = whole[:whole.index(stop)]
    r = text(client, max_tokens=40, stop=stop, extra_body={"ignore_eos": True})
    assert r.choices[0].text == want and r.choices[0].finish_reason == "stop"
    streamed = "".join(c.choices[0].text for c in text(client, max_tokens=40, stop=[stop, "never found"], stream=True, extra_body={"ignore_eos": True}))
    assert streamed == want


def test_token_ids_as_prompt(client, server):
    ids = server.post("/tokenize", {"model": "tiny", "prompt": "the red inn"}).json()["tokens"]
    assert text(client, prompt=ids).choices[0].text == text(client).choices[0].text
    assert text(client, prompt=ids).usage.prompt_tokens == len(ids)
    with pytest.raises(openai.BadRequestError):
        text(client, prompt=[1, 2, 99999])


def test_logprobs_of_chat(client):
    r = chat(client, logprobs=True, top_logprobs=3)
    content = r.choices[0].logprobs.content
    assert len(content) == r.usage.completion_tokens or r.choices[0].finish_reason == "stop"
    for t in content:
        assert t.logprob <= 0 and len(t.top_logprobs) == 3
        best = [x.logprob for x in t.top_logprobs]
        assert best == sorted(best, reverse=True)
        assert t.logprob == pytest.approx(best[0]), "greedy takes the likeliest"


def test_logprobs_of_completion(client):
    lp = text(client, logprobs=2).choices[0].logprobs
    n = len(lp.tokens)
    assert n > 0 and len(lp.token_logprobs) == len(lp.top_logprobs) == len(lp.text_offset) == n


@pytest.mark.parametrize("change, field", [
    ({"temperature": -1}, "temperature"), ({"top_p": 0}, "top_p"), ({"max_tokens": 0}, "max_tokens"), ({"n": 0}, "n"), ({"n": 129}, "n"),
    ({"stop": ""}, "stop"), ({"messages": []}, "messages"), ({"top_logprobs": 3}, "top_logprobs"), ({"tools": [{"type": "function"}]}, "tools"),
    ({"response_format": {"type": "nosuch"}}, "response_format"), ({"presence_penalty": 3}, "presence_penalty"),
    ({"logit_bias": {"99999999": 1}}, "logit_bias"), ({"extra_body": {"allowed_token_ids": [-1]}}, "allowed_token_ids"),
    ({"extra_body": {"stop_token_ids": [99999999]}}, "stop_token_ids"), ({"extra_body": {"best_of": 1}, "n": 2}, "best_of"),
])
def test_bad_values_are_refused_by_name(client, change, field):
    with pytest.raises(openai.BadRequestError) as e:
        chat(client, **change)
    assert e.value.status_code == 400 and e.value.param.split(".")[0].split("[")[0] == field, e.value
    assert field in str(e.value.message)


def test_unknown_model_is_404(client):
    with pytest.raises(openai.NotFoundError) as e:
        chat(client, model="gpt-4o")
    assert "gpt-4o" in e.value.message
    with pytest.raises(openai.NotFoundError):
        text(client, model="gpt-4o", stream=True)


def test_async_clients_at_once(server):
    async def all_of_them():
        async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="any", max_retries=0, timeout=120) as c:
            async def one(i):
                parts = []
                stream = await c.completions.create(model="tiny", prompt="number %d" % (i % 8), max_tokens=24, temperature=0, stream=True)
                async for chunk in stream:
                    parts.append(chunk.choices[0].text)
                return "".join(parts)
            return await asyncio.gather(*(one(i) for i in range(48)))

    answers = asyncio.run(all_of_them())
    for i, a in enumerate(answers):
        assert a == answers[i % 8], "a neighbour in the batch changed an answer"


def test_client_that_breaks_off(client, server):
    stream = text(client, stream=True, max_tokens=2000, extra_body={"ignore_eos": True})
    for _, chunk in zip(range(3), stream):
        assert chunk.choices
    stream.close()
    server.wait_idle()
