"""/v1/responses with the openai client: documents, events, structured answers; what needs storage is refused by name."""
import asyncio
import json

import openai
import pydantic
import pytest

from openai.types.responses import Response, ResponseStreamEvent

pytestmark = pytest.mark.real
EVENT = pydantic.TypeAdapter(ResponseStreamEvent)
DEFAULT = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"  # the model's own instructions, when it gets none
QUESTION = "What is 2+2?"


@pytest.fixture(scope="module")
def client(real):
    with openai.OpenAI(base_url=real.url + "/v1", api_key="any", max_retries=0, timeout=60) as c:
        yield c


def create(client, **kw):
    return client.responses.create(**{"model": "smollm2", "input": QUESTION, "max_output_tokens": 24, "temperature": 0, **kw})


def ask(real, **kw):
    return real.post("/v1/responses", {"model": "smollm2", "input": QUESTION, "max_output_tokens": 24, "temperature": 0, **kw})


def test_document(real):
    """The document is what the client's own model demands, field by field, nothing guessed."""
    r = Response.model_validate(ask(real, instructions=DEFAULT, metadata={"a": "b"}, user="me").json(), strict=False)
    assert r.id.startswith("resp_") and r.object == "response" and r.status == "completed" and r.error is None and r.incomplete_details is None
    (message,) = r.output
    assert message.id.startswith("msg_") and message.role == "assistant" and message.status == "completed"
    (part,) = message.content
    assert part.type == "output_text" and "4" in part.text and part.annotations == []
    u = r.usage
    assert u.total_tokens == u.input_tokens + u.output_tokens and u.output_tokens_details.reasoning_tokens == 0
    assert 0 <= u.input_tokens_details.cached_tokens < u.input_tokens
    assert (r.instructions, r.metadata, r.user, r.max_output_tokens, r.temperature) == (DEFAULT, {"a": "b"}, "me", 24, 0)
    assert (r.tools, r.tool_choice, r.parallel_tool_calls, r.top_p, r.model, r.model_dump()["store"]) == ([], "auto", True, 1, "smollm2", False)


def test_it_is_what_chat_says(real, client):
    chat = real.chat(QUESTION, max_tokens=24)["choices"][0]["message"]["content"]
    assert create(client).output_text == chat
    with_system = [{"role": "system", "content": "Talk like a pirate."}, {"role": "user", "content": QUESTION}]
    assert create(client, instructions="Talk like a pirate.").output_text == real.chat(with_system, max_tokens=24)["choices"][0]["message"]["content"]


def test_events(real):
    """Each event is what the client's model of it demands; numbers without a gap; the deltas are the text."""
    want = Response.model_validate(ask(real).json()).output_text
    body = ask(real, stream=True).text()
    events = []
    for block in body.strip().split("\n\n"):
        name, data = block.split("\n")
        event = EVENT.validate_json(data.removeprefix("data: "), strict=False)
        assert name == "event: " + event.type
        events.append(event)
    assert [e.sequence_number for e in events] == list(range(len(events)))
    types = [e.type.removeprefix("response.") for e in events]
    deltas = types.count("output_text.delta")
    assert deltas > 3
    assert types == (["created", "in_progress", "output_item.added", "content_part.added"] + ["output_text.delta"] * deltas
                     + ["output_text.done", "content_part.done", "output_item.done", "completed"])
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == want
    assert events[-4].text == events[-3].part.text == events[-2].item.content[0].text == events[-1].response.output_text == want
    assert {e.response.id for e in events if hasattr(e, "response")} == {events[0].response.id}
    assert len({e.item_id for e in events if hasattr(e, "item_id")}) == 1
    assert events[0].response.usage is None and events[-1].response.usage.output_tokens > 3


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 9, 24])
def test_rare_characters_come_whole(client, limit):
    kw = {"input": "Repeat exactly: \U0001fae0 \u9f9c \U0001f469\u200d\U0001f466", "max_output_tokens": limit}
    deltas = [e.delta for e in create(client, stream=True, **kw) if e.type == "response.output_text.delta"]
    assert "".join(deltas) == create(client, **kw).output_text


def test_stream_helper(client):
    with client.responses.stream(model="smollm2", input=QUESTION, max_output_tokens=24, temperature=0) as stream:
        text = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert final.output_text == text == create(client).output_text
    assert final.status == "completed" and final.usage.total_tokens > 0


def test_async(real):
    async def all_of_them():
        async with openai.AsyncOpenAI(base_url=real.url + "/v1", api_key="any", max_retries=0, timeout=60) as c:
            async def one(stream):
                r = await create(c, stream=stream)
                if not stream:
                    return r.output_text
                return "".join([e.delta async for e in r if e.type == "response.output_text.delta"])
            return await asyncio.gather(*(one(i % 2 == 0) for i in range(8)))
    assert len(set(asyncio.run(all_of_them()))) == 1


def test_cut_answer(client):
    r = create(client, max_output_tokens=2)
    assert r.status == "incomplete" and r.incomplete_details.reason == "max_output_tokens" and r.usage.output_tokens == 2
    assert r.output[0].status == "incomplete"
    events = list(create(client, max_output_tokens=2, stream=True))
    assert events[-1].type == "response.incomplete" and events[-1].response.incomplete_details.reason == "max_output_tokens"


def test_conversation(real, client):
    """What came out goes in again, as OpenAI's guide does it."""
    first = create(client, input=[{"role": "user", "content": [{"type": "input_text", "text": "My name is Anna."}]}])
    history = [{"role": "user", "content": "My name is Anna."}] + [o.model_dump() for o in first.output]
    history.append({"role": "user", "content": "What is my name?"})
    r = create(client, input=history)
    chat = [{"role": "user", "content": "My name is Anna."}, {"role": "assistant", "content": first.output_text}, {"role": "user", "content": "What is my name?"}]
    assert r.output_text == real.chat(chat, max_tokens=24)["choices"][0]["message"]["content"]


def test_logprobs(client):
    r = create(client, include=["message.output_text.logprobs"], top_logprobs=2)
    part = r.output[0].content[0]
    assert len(part.logprobs) == r.usage.output_tokens
    for t in part.logprobs:
        assert t.logprob <= 0 and len(t.top_logprobs) == 2 and bytes(t.bytes).decode("utf-8", "replace") == t.token
    assert part.text.startswith(part.logprobs[0].token)
    stream = list(create(client, include=["message.output_text.logprobs"], stream=True))
    streamed = [t.token for e in stream if e.type == "response.output_text.delta" for t in e.logprobs]
    assert "".join(streamed) == part.text
    done = next(e for e in stream if e.type == "response.output_text.done")
    assert [t.token for t in done.logprobs][:len(streamed)] == streamed
    assert create(client).output[0].content[0].logprobs == []


def test_count(real, client):
    n = client.responses.input_tokens.count(model="smollm2", input=QUESTION).input_tokens
    assert n == create(client).usage.input_tokens
    assert client.responses.input_tokens.count(model="smollm2", input=QUESTION, instructions="Be short.").input_tokens != n


@pytest.mark.parametrize("change, field, words", [
    ({"previous_response_id": "resp_1"}, "previous_response_id", "not stored"),
    ({"conversation": "conv_1"}, "conversation", "not stored"),
    ({"background": True}, "background", "not stored"),
    ({"truncation": "auto"}, "truncation", "disabled"),
    ({"input": []}, "input", "not empty"),
    ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "http://127.0.0.1/x.png"}]}]}, "input[0].content[0]", "input_image"),
    ({"max_output_tokens": 0}, "max_output_tokens", "whole number"),
    ({"tools": [{"type": "web_search"}]}, "tools[0]", "function"),
    ({"temperature": -1}, "temperature", "number"),
    ({"reasoning": {"effort": "huge"}}, "reasoning.effort", "medium"),
    ({"text": {"format": {"type": "grammar"}}}, "text.format", "json_schema"),
    ({"input": "word " * 20000}, "input", "maximum context length"),
])
@pytest.mark.parametrize("stream", [False, True])
def test_refusals(client, change, field, words, stream):
    with pytest.raises(openai.BadRequestError) as e:
        create(client, stream=stream, **change)
    assert e.value.param == field and words in e.value.message


def test_nothing_is_stored(client):
    for act in (client.responses.retrieve, client.responses.delete, client.responses.cancel, client.responses.input_items.list):
        with pytest.raises(openai.NotFoundError) as e:
            r = act("resp_1")
            list(r)
        assert "not stored" in e.value.message
    assert create(client, store=True).model_dump()["store"] is False


def test_client_that_breaks_off(real, client):
    stream = create(client, stream=True, max_output_tokens=2000, extra_body={"ignore_eos": True})
    for e in stream:
        if e.type == "response.output_text.delta":
            break
    stream.close()
    real.wait_idle()


# ---- structured answers ----


class City(pydantic.BaseModel):
    name: str
    population: int


def test_parse(client):
    r = client.responses.parse(model="smollm2", input="Tell me about Paris.", text_format=City, max_output_tokens=200, temperature=0)
    assert isinstance(r.output_parsed, City)
    assert r.text.format.type == "json_schema" and r.text.format.name == "City"


def test_parse_stream(client):
    with client.responses.stream(model="smollm2", input="Tell me about Paris.", text_format=City, max_output_tokens=200, temperature=0) as stream:
        for _ in stream:
            pass
        assert isinstance(stream.get_final_response().output_parsed, City)


def test_json_object(client):
    r = create(client, text={"format": {"type": "json_object"}}, max_output_tokens=200)
    assert isinstance(json.loads(r.output_text), dict), "complete, also when max_output_tokens came first"
