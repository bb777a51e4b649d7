"""/v1/messages and count_tokens with the anthropic client: documents, events, errors in Anthropic's shape."""
import asyncio

import anthropic
import pydantic
import pytest

from anthropic.types import Message, RawMessageStreamEvent

pytestmark = pytest.mark.real
EVENT = pydantic.TypeAdapter(RawMessageStreamEvent)
QUESTION = "What is 2+2?"
DEFAULT = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"  # the model's own instructions, when it gets none


@pytest.fixture(scope="module")
def client(real):
    with anthropic.Anthropic(base_url=real.url, api_key="any", max_retries=0, timeout=60) as c:
        yield c


def user(text):
    return [{"role": "user", "content": text}]


def args(**kw):
    """This client knows no temperature any more; servers do."""
    extra = {"temperature": 0, **{k: kw.pop(k) for k in ("temperature", "ignore_eos") if k in kw}}
    return {"model": "smollm2", "messages": user(QUESTION), "max_tokens": 24, "extra_body": extra, **kw}


def create(client, **kw):
    return client.messages.create(**args(**kw))


def ask(real, path="/v1/messages", **kw):
    return real.post(path, {"model": "smollm2", "messages": user(QUESTION), "max_tokens": 24, "temperature": 0, **kw},
                     headers=["x-api-key: any", "anthropic-version: 2023-06-01"])


def test_document(real):
    """The document is what the client's own model demands, field by field, nothing guessed."""
    m = Message.model_validate(ask(real).json(), strict=True)
    assert m.id.startswith("msg_") and m.type == "message" and m.role == "assistant" and m.model == "smollm2"
    (block,) = m.content
    assert block.type == "text" and "4" in block.text
    assert m.stop_reason == "end_turn" and m.stop_sequence is None
    again = Message.model_validate(ask(real).json(), strict=True).usage
    assert again.cache_read_input_tokens > 0 and again.cache_read_input_tokens + again.input_tokens == m.usage.cache_read_input_tokens + m.usage.input_tokens
    assert again.output_tokens == m.usage.output_tokens > 3


def test_it_is_what_chat_says(real, client):
    assert create(client).content[0].text == real.chat(QUESTION, max_tokens=24)["choices"][0]["message"]["content"]
    pirate = real.chat([{"role": "system", "content": "Talk like a pirate."}, {"role": "user", "content": QUESTION}], max_tokens=24)
    want = pirate["choices"][0]["message"]["content"]
    assert create(client, system="Talk like a pirate.").content[0].text == want
    blocks = [{"type": "text", "text": "Talk like a pirate.", "cache_control": {"type": "ephemeral"}}]
    assert create(client, system=blocks, messages=[{"role": "user", "content": [{"type": "text", "text": QUESTION}]}]).content[0].text == want


def test_events(real):
    """Each event is what the client's model of it demands, in the documented order; the deltas are the text."""
    want = ask(real).json()
    events = []
    for block in ask(real, stream=True).text().strip().split("\n\n"):
        name, data = block.split("\n")
        event = EVENT.validate_json(data.removeprefix("data: "), strict=True)
        assert name == "event: " + event.type
        events.append(event)
    types = [e.type for e in events]
    deltas = types.count("content_block_delta")
    assert deltas > 3
    assert types == ["message_start", "content_block_start"] + ["content_block_delta"] * deltas + ["content_block_stop", "message_delta", "message_stop"]
    assert "".join(e.delta.text for e in events if e.type == "content_block_delta") == want["content"][0]["text"]
    assert {e.index for e in events if hasattr(e, "index")} == {0}
    start, end = events[0].message, events[-2]
    assert start.content == [] and start.stop_reason is None and start.usage.input_tokens > 0
    assert end.delta.stop_reason == "end_turn" and end.usage.output_tokens == want["usage"]["output_tokens"]
    assert end.usage.input_tokens + end.usage.cache_read_input_tokens == start.usage.input_tokens


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 9, 24])
def test_rare_characters_come_whole(client, limit):
    kw = args(messages=user("Repeat exactly: \U0001fae0 \u9f9c \U0001f469\u200d\U0001f466"), max_tokens=limit)
    with client.messages.stream(**kw) as stream:
        assert "".join(stream.text_stream) == client.messages.create(**kw).content[0].text


def test_stream_helper(client):
    with client.messages.stream(**args()) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    whole = create(client)
    assert text == final.content[0].text == whole.content[0].text
    assert final.stop_reason == "end_turn" and final.usage.output_tokens == whole.usage.output_tokens


def test_async(real):
    async def all_of_them():
        async with anthropic.AsyncAnthropic(base_url=real.url, api_key="any", max_retries=0, timeout=60) as c:
            async def one(stream):
                if not stream:
                    return (await create(c)).content[0].text
                async with c.messages.stream(**args()) as s:
                    return "".join([t async for t in s.text_stream])
            return await asyncio.gather(*(one(i % 2 == 0) for i in range(8)))
    assert len(set(asyncio.run(all_of_them()))) == 1


def test_how_it_stops(client):
    whole = create(client).content[0].text
    m = create(client, max_tokens=2)
    assert m.stop_reason == "max_tokens" and m.usage.output_tokens == 2
    m = create(client, stop_sequences=["never", " math"])
    assert (m.stop_reason, m.stop_sequence) == ("stop_sequence", " math")
    assert m.content[0].text == whole.split(" math")[0]
    with client.messages.stream(**args(stop_sequences=[" math"])) as stream:
        text = "".join(stream.text_stream)
        m = stream.get_final_message()
    assert (m.stop_reason, m.stop_sequence, text) == ("stop_sequence", " math", whole.split(" math")[0])


def test_beginning_of_the_answer(client):
    """The last message is the assistant's: it is gone on with, not answered."""
    whole = create(client).content[0].text
    begun = whole[:whole.index(" math")]
    m = create(client, messages=user(QUESTION) + [{"role": "assistant", "content": begun}])
    assert begun + m.content[0].text == whole


def test_conversation(real, client):
    first = create(client, messages=user("My name is Anna."))
    m = create(client, messages=user("My name is Anna.") + [{"role": "assistant", "content": first.content}] + user("What is my name?"))
    chat = [{"role": "user", "content": "My name is Anna."}, {"role": "assistant", "content": first.content[0].text}, {"role": "user", "content": "What is my name?"}]
    assert m.content[0].text == real.chat(chat, max_tokens=24)["choices"][0]["message"]["content"]


def test_count(real, client):
    n = client.messages.count_tokens(model="smollm2", messages=user(QUESTION)).input_tokens
    u = create(client).usage
    assert n == u.input_tokens + u.cache_read_input_tokens
    assert client.messages.count_tokens(model="smollm2", messages=user(QUESTION), system=DEFAULT).input_tokens == n
    assert client.messages.count_tokens(model="smollm2", messages=user(QUESTION + " Tell me!")).input_tokens > n
    with pytest.raises(anthropic.BadRequestError):
        client.messages.count_tokens(model="smollm2", messages=[])
    with pytest.raises(anthropic.NotFoundError):
        client.messages.count_tokens(model="claude", messages=user(QUESTION))


@pytest.mark.parametrize("change, words", [
    ({"messages": []}, "`messages`"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "`messages[0].role`"),
    ({"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "http://127.0.0.1/x.png"}}]}]}, "`image`"),
    ({"messages": [{"role": "user", "content": [{"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"}}]}]}, "`document`"),
    ({"max_tokens": 0}, "`max_tokens`"),
    ({"temperature": -1}, "`temperature`"),
    ({"stop_sequences": [""]}, "`stop_sequences`"),
    ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "`tools[0]`"),
    ({"messages": user("word " * 20000)}, "maximum context length"),
])
@pytest.mark.parametrize("stream", [False, True])
def test_refusals(client, change, words, stream):
    with pytest.raises(anthropic.BadRequestError) as e:
        create(client, stream=stream, **change)
    assert e.value.body["type"] == "error" and e.value.body["error"]["type"] == "invalid_request_error"
    assert words in e.value.body["error"]["message"]


def test_max_tokens_is_required(real):
    r = real.post("/v1/messages", {"model": "smollm2", "messages": user(QUESTION)})
    assert r.status == 400 and r.json() == {"type": "error", "error": {"type": "invalid_request_error", "message": "`max_tokens` is required."}}


def test_errors_have_anthropics_shape(real, client):
    with pytest.raises(anthropic.NotFoundError) as e:
        create(client, model="claude")
    assert e.value.body["error"]["type"] == "not_found_error"
    for method, path, status, kind in (("GET", "/v1/messages", 405, "invalid_request_error"), ("GET", "/v1/messages/batches", 404, "not_found_error"),
                                       ("POST", "/v1/messages", 400, "invalid_request_error")):
        r = real.ask(method, path, b"{" if method == "POST" else None)
        assert r.status == status and r.json()["type"] == "error" and r.json()["error"]["type"] == kind, r


def test_keys_and_sizes(start, tiny):
    """What is refused before the handler has the shape too: no key, too long."""
    s = start(tiny, "--api-key", "secret", "--max-body-bytes", "20000", key="secret").ready()
    with anthropic.Anthropic(base_url=s.url, api_key="wrong", max_retries=0, timeout=60) as c:
        with pytest.raises(anthropic.AuthenticationError) as e:
            create(c, model="tiny")
        assert e.value.body["error"]["type"] == "authentication_error"
    with anthropic.Anthropic(base_url=s.url, api_key="secret", max_retries=0, timeout=60) as c:
        assert create(c, model="tiny").type == "message"
        with pytest.raises(anthropic.RequestTooLargeError) as e:
            create(c, model="tiny", messages=user("x" * 30000))
        assert e.value.body["error"]["type"] == "request_too_large"


def test_beta_and_models(client):
    m = client.beta.messages.create(**args(betas=["context-management-2025-06-27"]))
    assert m.content[0].text == create(client).content[0].text
    assert [x.id for x in client.models.list()] == ["smollm2"]


def test_client_that_breaks_off(real, client):
    stream = create(client, stream=True, max_tokens=2000, ignore_eos=True)
    for e in stream:
        if e.type == "content_block_delta":
            break
    stream.close()
    real.wait_idle()
