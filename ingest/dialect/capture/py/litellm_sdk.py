"""LiteLLM SDK with its otel callback; LITELLM_OTEL_V2 selects the second generation, ROOT=0 leaves out the app's span."""

import asyncio
import contextlib
import json
import os

import common

provider = common.start()

import litellm  # noqa: E402

litellm.callbacks = ["otel"]
litellm.telemetry = False
extra = {"metadata": {"user_api_key_team_id": common.TENANT, "session_id": common.SESSION, "tenant": common.TENANT}, "user": common.USER} if common.tenanted else {}
if common.script == "tools":
    extra["tools"] = [{"type": "function", "function": {"name": "get_weather", "parameters": common.PARAMETERS}}]
if common.mode in ("retry-429", "retry-500", "always-429"):
    extra["num_retries"] = 2
prefix = {"anthropic": "anthropic", "gemini": "gemini"}.get(common.api, "openai")
base = {"anthropic": common.base, "gemini": f"{common.base}/v1beta"}.get(common.api, common.base)


async def ask():
    # The second generation closes its spans in the asynchronous callbacks only; the first is recorded synchronously.
    asynchronous = "LITELLM_OTEL_V2" in os.environ
    embedding, responses, completion = (getattr(litellm, ("a" if asynchronous else "") + n) for n in ("embedding", "responses", "completion"))

    async def done(r):
        return await r if asynchronous else r

    if common.api == "embeddings":
        return await done(embedding(model=f"openai/{common.model}", input=[common.PROMPT], api_base=base, **extra))
    if common.api == "responses":
        return await done(responses(model=f"openai/{common.model}", input=common.PROMPT, api_base=base, **extra))
    messages = [{"role": "user", "content": common.PROMPT}]
    while True:
        streaming = {"stream": True, **({"stream_options": {"include_usage": True}} if common.usage else {})} if common.stream else {}
        r = await done(completion(model=f"{prefix}/{common.model}", messages=messages, api_base=base, **streaming, **extra))
        if common.stream and asynchronous:
            async for _ in r:
                pass
            return None
        if common.stream:
            for _ in r:
                pass
            return None
        message = r.choices[0].message
        if not message.tool_calls:
            return r
        messages.append(json.loads(message.model_dump_json(exclude_none=True)))
        messages += [{"role": "tool", "tool_call_id": c.id, "content": common.weather()} for c in message.tool_calls]


async def handle():
    with common.tolerated(), common.request() if os.environ.get("ROOT") != "0" else contextlib.nullcontext():
        try:
            await ask()
        finally:
            # Success callbacks run beside the request and write on its span while it is open; with EARLY=1
            # the handler answers at once, as most handlers do.
            await asyncio.sleep(0 if os.environ.get("EARLY") else 1)
    await asyncio.sleep(1)


asyncio.run(handle())
common.finish(provider)
