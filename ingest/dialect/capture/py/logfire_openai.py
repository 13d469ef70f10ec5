"""The OpenAI client under logfire.instrument_openai, the Anthropic client under logfire.instrument_anthropic."""

import common
import logfire

logfire.configure(send_to_logfire=False, console=False, service_name="capture")
with logfire.span("POST /ask", _tags=["support"] if common.tenanted else []) as span, common.tolerated():
    if common.tenanted:
        span.set_attributes({"user.id": common.USER, "session.id": common.SESSION, "tenant.id": common.TENANT})
    if common.api == "anthropic":
        import anthropic

        client = anthropic.Anthropic(base_url=common.base)
        logfire.instrument_anthropic(client)
        common.anthropic(client)
    else:
        import openai

        client = openai.OpenAI(base_url=common.base)
        logfire.instrument_openai(client)
        common.openai(client)
logfire.force_flush()
