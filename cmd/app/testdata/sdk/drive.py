"""Makes the calls that the test asks for, as drive.mjs does, with the Python SDKs."""

import json
import sys

import anthropic
import openai

ASK = 'Say "hello" in three words, with an é.'


def say(v):
    sys.stdout.write(json.dumps(v) + "\n")
    sys.stdout.flush()


def plain(usage):
    return usage.model_dump(exclude_none=True) if usage else None


def gather(call, stream, pieces):
    out = {"text": "", "usage": {}}
    for event in stream:
        text, model, usage = pieces(event)
        if model:
            out["model"] = model
        out["usage"].update(plain(usage) or {})
        if not text:
            continue
        out["text"] += text
        say({"chunk": text})
        if call.get("cancel"):
            sys.stdin.readline()
            stream.close()
            break
    return out


def openai_chat(call):
    client = openai.OpenAI(api_key="k", base_url=call["base"] + "/v1", default_headers=call["headers"])
    body = {"model": call["model"], "max_tokens": 50, "messages": [{"role": "user", "content": ASK}]}
    if not call.get("stream"):
        r = client.chat.completions.create(**body)
        return {"text": r.choices[0].message.content, "model": r.model, "usage": plain(r.usage)}
    stream = client.chat.completions.create(**body, stream=True, stream_options={"include_usage": True})
    return gather(call, stream, lambda e: (e.choices[0].delta.content if e.choices else None, e.model, e.usage))


def openai_responses(call):
    client = openai.OpenAI(api_key="k", base_url=call["base"] + "/v1", default_headers=call["headers"])
    body = {"model": call["model"], "max_output_tokens": 50, "input": ASK}
    if not call.get("stream"):
        r = client.responses.create(**body)
        return {"text": r.output_text, "model": r.model, "usage": plain(r.usage)}

    def pieces(e):
        response = getattr(e, "response", None)
        return (e.delta if e.type == "response.output_text.delta" else None, response and response.model, response and response.usage)

    return gather(call, client.responses.create(**body, stream=True), pieces)


def anthropic_messages(call):
    client = anthropic.Anthropic(api_key="k", base_url=call["base"], default_headers=call["headers"])
    body = {"model": call["model"], "max_tokens": 50, "messages": [{"role": "user", "content": ASK}]}
    if not call.get("stream"):
        r = client.messages.create(**body)
        return {"text": r.content[0].text, "model": r.model, "usage": plain(r.usage)}

    def pieces(e):
        message = getattr(e, "message", None)
        usage = getattr(e, "usage", None) or (message and message.usage)
        return (e.delta.text if e.type == "content_block_delta" else None, message and message.model, usage)

    return gather(call, client.messages.create(**body, stream=True), pieces)


APIS = {"openai.chat": openai_chat, "openai.responses": openai_responses, "anthropic.messages": anthropic_messages}

for line in iter(sys.stdin.readline, ""):
    call = json.loads(line)
    try:
        say({"done": True, **APIS[call["api"]](call)})
    except Exception as e:
        say({"done": True, "error": f"{type(e).__name__}: {e}", "status": getattr(e, "status_code", 0) or 0})
