"""What every Python set-up shares: the scenario, the tracer provider, the app's root span and the calls."""

import contextlib
import json
import os

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

MODES = {
    "stream": dict(script="cached", stream=True, usage=True),
    "stream-nousage": dict(script="cached", stream=True, usage=False),
    "stream-reasoning": dict(script="reasoning", stream=True, usage=True),
    "stream-tools": dict(script="tools", stream=True, usage=True),
    "abort": dict(script="abort", stream=True, usage=True),
    "tenant": dict(script="plain", tenant=True),
}
MODELS = {
    "chat": "gpt-5",
    "responses": "gpt-5",
    "embeddings": "text-embedding-3-small",
    "anthropic": "claude-sonnet-4-5",
    "gemini": "gemini-2.5-pro",
}
PATHS = {"chat": "openai/v1", "responses": "openai/v1", "embeddings": "openai/v1", "anthropic": "anthropic", "gemini": "gemini"}

name = os.environ["CAPTURE_SCENARIO"]
api, _, mode = name.partition("-")
mode = mode or "plain"
settings = MODES.get(mode, dict(script=mode))
script = settings["script"]
stream, usage, tenanted = settings.get("stream", False), settings.get("usage", False), settings.get("tenant", False)
model = MODELS.get(api, "gpt-5")
base = f"{os.environ['CAPTURE_PROVIDER']}/{script}/{PATHS.get(api, 'openai/v1')}"
otlp = os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"]

TENANT, USER, SESSION = "acme", "user-7", "session-3"
PROMPT = "canary question"
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}


def weather() -> str:
    return json.dumps({"temperature": 21, "note": "canary weather"})


def start() -> TracerProvider:
    """Installs a tracer provider as an app would: batches, OTLP/protobuf over HTTP."""
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return provider


@contextlib.contextmanager
def tolerated():
    """Lets pass only the failures that the script asked for."""
    try:
        yield
    except Exception:
        if mode not in ("always-429", "abort"):
            raise


@contextlib.contextmanager
def request():
    """Runs the block as a web handler would, under a SERVER span of the app."""
    with trace.get_tracer("app").start_as_current_span("POST /ask", kind=trace.SpanKind.SERVER) as span:
        span.set_attributes({"http.request.method": "POST", "http.route": "/ask"})
        span.set_attribute("http.response.status_code", 502)
        with tolerated():
            yield span
            span.set_attribute("http.response.status_code", 200)


def finish(provider) -> None:
    provider.force_flush()
    provider.shutdown()


def openai(client):
    """One user request through the OpenAI client: chat, responses or embeddings, with a tool loop if asked."""
    if api == "embeddings":
        return client.embeddings.create(model=model, input=[PROMPT])
    if api == "responses":
        tools = [{"type": "function", "name": "get_weather", "parameters": PARAMETERS, "strict": True}] if script == "tools" else []
        items = [{"role": "user", "content": PROMPT}]
        while True:
            if stream:
                for _ in client.responses.create(model=model, input=items, stream=True):
                    pass
                return None
            r = client.responses.create(model=model, input=items, tools=tools, store=False)
            calls = [o for o in r.output if o.type == "function_call"]
            if not calls:
                return r
            items += [o.model_dump(exclude_none=True) for o in r.output]
            items += [{"type": "function_call_output", "call_id": c.call_id, "output": weather()} for c in calls]
    extra = {"tools": [{"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}}]} if script == "tools" else {}
    if tenanted:
        extra["user"] = USER
    messages = [{"role": "user", "content": PROMPT}]
    while True:
        if stream:
            options = {"stream_options": {"include_usage": True}} if usage else {}
            for _ in client.chat.completions.create(model=model, messages=messages, stream=True, **options):
                pass
            return None
        r = client.chat.completions.create(model=model, messages=messages, **extra)
        message = r.choices[0].message
        if not message.tool_calls:
            return r
        messages.append(message.model_dump(exclude_none=True))
        messages += [{"role": "tool", "tool_call_id": c.id, "content": weather()} for c in message.tool_calls]


def anthropic(client):
    extra = {"tools": [{"name": "get_weather", "input_schema": PARAMETERS}]} if script == "tools" else {}
    if tenanted:
        extra["metadata"] = {"user_id": USER}
    messages = [{"role": "user", "content": PROMPT}]
    while True:
        if stream:
            for _ in client.messages.create(model=model, max_tokens=1024, messages=messages, stream=True):
                pass
            return None
        r = client.messages.create(model=model, max_tokens=1024, messages=messages, **extra)
        if r.stop_reason != "tool_use":
            return r
        messages.append({"role": "assistant", "content": [b.model_dump(exclude_none=True) for b in r.content]})
        messages.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": b.id, "content": weather()} for b in r.content if b.type == "tool_use"]})
