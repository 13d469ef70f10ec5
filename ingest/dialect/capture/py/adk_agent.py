"""Google ADK with its own tracer, or under the instrumentation named by INSTRUMENTATION."""

import asyncio
import os

import common

provider = common.start()
which = os.environ.get("INSTRUMENTATION")
if which == "openinference":
    from openinference.instrumentation.google_adk import GoogleADKInstrumentor

    GoogleADKInstrumentor().instrument()
if which == "contrib":
    from opentelemetry.instrumentation.google_genai import GoogleGenAiSdkInstrumentor

    GoogleGenAiSdkInstrumentor().instrument()

from google.adk.agents import Agent  # noqa: E402
from google.adk.agents.run_config import RunConfig, StreamingMode  # noqa: E402
from google.adk.runners import InMemoryRunner  # noqa: E402
from google.genai import types  # noqa: E402

if common.api == "gemini":
    from google.adk.models.google_llm import Gemini

    os.environ["GOOGLE_GEMINI_BASE_URL"] = common.base
    model = Gemini(model=common.model, retry_options=types.HttpRetryOptions(attempts=3, initial_delay=0.01, max_delay=0.02))
else:
    from google.adk.models.lite_llm import LiteLlm

    kind = "anthropic" if common.api == "anthropic" else "openai"
    model = LiteLlm(model=f"{kind}/{common.model}", api_base=common.base, num_retries=2)


def get_weather(city: str) -> dict:
    """canary description"""
    return {"weather": common.weather()}


agent = Agent(name="answer_question", model=model, instruction="canary instruction", tools=[get_weather] if common.script == "tools" else [])


async def main():
    runner = InMemoryRunner(agent=agent, app_name="answers")
    session = await runner.session_service.create_session(app_name="answers", user_id=common.USER, session_id=common.SESSION)
    config = RunConfig(streaming_mode=StreamingMode.SSE if common.stream else StreamingMode.NONE)
    message = types.Content(role="user", parts=[types.Part(text=common.PROMPT)])
    async for _ in runner.run_async(user_id=session.user_id, session_id=session.id, new_message=message, run_config=config):
        pass


with common.tolerated():
    asyncio.run(main())
common.finish(provider)
