"""A provider SDK under one instrumentation, called from a web handler. INSTRUMENTATION names it."""

import contextlib
import importlib
import os

import common

which = os.environ["INSTRUMENTATION"]
provider = common.start()

MODULES = {
    "contrib": {"openai": "opentelemetry.instrumentation.openai_v2"},
    "genai": {"openai": "opentelemetry.instrumentation.genai.openai", "anthropic": "opentelemetry.instrumentation.genai.anthropic"},
    "openinference": {"openai": "openinference.instrumentation.openai", "anthropic": "openinference.instrumentation.anthropic"},
    "traceloop": {"openai": "opentelemetry.instrumentation.openai", "anthropic": "opentelemetry.instrumentation.anthropic"},
    "native": {},  # The Anthropic SDK traces by itself from version 2 on.
}
sdk = "anthropic" if common.api == "anthropic" else "openai"
if sdk in MODULES[which]:
    module = importlib.import_module(MODULES[which][sdk])
    getattr(module, {"openai": "OpenAIInstrumentor", "anthropic": "AnthropicInstrumentor"}[sdk])().instrument()
if os.environ.get("HTTPX"):
    from opentelemetry.instrumentation.httpx import HTTPXClientInstrumentor

    HTTPXClientInstrumentor().instrument()


def attributed(span):
    """Says whose request it is, by the means of the instrumentation or else on the app's own span."""
    if common.tenanted and which == "openinference":
        from openinference.instrumentation import using_attributes

        return using_attributes(session_id=common.SESSION, user_id=common.USER, metadata={"tenant": common.TENANT}, tags=["support"])
    if common.tenanted:
        span.set_attributes({"user.id": common.USER, "session.id": common.SESSION, "tenant.id": common.TENANT})
    return contextlib.nullcontext()


with common.request() as span, attributed(span):
    if sdk == "anthropic":
        import anthropic

        common.anthropic(anthropic.Anthropic(base_url=common.base))
    else:
        import openai

        common.openai(openai.OpenAI(base_url=common.base))
common.finish(provider)
