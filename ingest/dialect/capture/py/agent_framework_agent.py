"""Microsoft's Agent Framework with its own tracer."""

import asyncio

import common

provider = common.start()

from agent_framework.observability import enable_instrumentation  # noqa: E402

enable_instrumentation()


def get_weather(city: str) -> str:
    """canary description"""
    return common.weather()


if common.api == "anthropic":
    from agent_framework.anthropic import AnthropicClient
    from anthropic import AsyncAnthropic

    client = AnthropicClient(model=common.model, anthropic_client=AsyncAnthropic(base_url=common.base))
elif common.api == "responses":
    from agent_framework.openai import OpenAIChatClient

    client = OpenAIChatClient(model=common.model, base_url=common.base)
else:
    from agent_framework.openai import OpenAIChatCompletionClient

    client = OpenAIChatCompletionClient(model=common.model, base_url=common.base)
agent = client.as_agent(name="answer_question", instructions="canary instruction", tools=[get_weather] if common.script == "tools" else [])


async def main():
    if common.stream:
        async for _ in agent.run(common.PROMPT, stream=True):
            pass
    else:
        await agent.run(common.PROMPT)


with common.request() as span:
    if common.tenanted:
        span.set_attributes({"user.id": common.USER, "session.id": common.SESSION, "tenant.id": common.TENANT})
    asyncio.run(main())
common.finish(provider)
