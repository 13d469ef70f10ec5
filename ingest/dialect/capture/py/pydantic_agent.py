"""pydantic-ai Agent with its own instrumentation; LOGFIRE=1 configures it through logfire instead."""

import os

import common
from pydantic_ai import Agent

logfire = os.environ.get("LOGFIRE")
if logfire:
    import logfire

    # OTEL_EXPORTER_OTLP_ENDPOINT makes logfire export there; nothing goes to its own service.
    logfire.configure(send_to_logfire=False, console=False, service_name="capture")
    logfire.instrument_pydantic_ai()
else:
    provider = common.start()
    Agent.instrument_all()

if common.api == "anthropic":
    from anthropic import AsyncAnthropic
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    model = AnthropicModel(common.model, provider=AnthropicProvider(anthropic_client=AsyncAnthropic(base_url=common.base)))
else:
    from openai import AsyncOpenAI
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    kind = OpenAIResponsesModel if common.api == "responses" else OpenAIChatModel
    model = kind(common.model, provider=OpenAIProvider(openai_client=AsyncOpenAI(base_url=common.base)))

agent = Agent(model, name="answer_question")
if common.script == "tools":

    @agent.tool_plain
    def get_weather(city: str) -> str:
        return common.weather()


async def streamed():
    async with agent.run_stream(common.PROMPT) as result:
        async for _ in result.stream_text():
            pass


with common.tolerated():
    if common.stream:
        import asyncio

        asyncio.run(streamed())
    elif common.tenanted:
        agent.run_sync(common.PROMPT, metadata={"tenant": common.TENANT, "user_id": common.USER}, conversation_id=common.SESSION)
    else:
        agent.run_sync(common.PROMPT)
if logfire:
    logfire.force_flush()
else:
    common.finish(provider)
