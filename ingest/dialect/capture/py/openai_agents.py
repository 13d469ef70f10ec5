"""OpenAI Agents SDK under the instrumentation named by INSTRUMENTATION."""

import os

import common

provider = common.start()
which = os.environ["INSTRUMENTATION"]
if which == "openinference":
    from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor
elif which == "genai":
    # It leaves the model calls to the instrumentation of the OpenAI client.
    from opentelemetry.instrumentation.genai.openai import OpenAIInstrumentor
    from opentelemetry.instrumentation.genai.openai_agents import OpenAIAgentsInstrumentor

    OpenAIInstrumentor().instrument()
else:
    from opentelemetry.instrumentation.openai_agents import OpenAIAgentsInstrumentor
OpenAIAgentsInstrumentor().instrument()

from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, RunConfig, Runner, function_tool  # noqa: E402
from openai import AsyncOpenAI  # noqa: E402


@function_tool
def get_weather(city: str) -> str:
    return common.weather()


kind = OpenAIResponsesModel if common.api == "responses" else OpenAIChatCompletionsModel
agent = Agent(
    name="answer_question", instructions="canary instructions", tools=[get_weather] if common.script == "tools" else [],
    model=kind(model=common.model, openai_client=AsyncOpenAI(base_url=common.base)),
)
config = RunConfig(workflow_name="answer", **({"group_id": common.SESSION, "trace_metadata": {"user_id": common.USER, "tenant": common.TENANT}} if common.tenanted else {}))


async def streamed():
    result = Runner.run_streamed(agent, common.PROMPT, run_config=config)
    async for _ in result.stream_events():
        pass


with common.tolerated():
    if common.stream:
        import asyncio

        asyncio.run(streamed())
    else:
        Runner.run_sync(agent, common.PROMPT, run_config=config)
common.finish(provider)
