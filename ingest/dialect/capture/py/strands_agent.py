"""Strands agent with its own tracer."""

import common

provider = common.start()

from strands import Agent, ModelRetryStrategy, tool  # noqa: E402


@tool
def get_weather(city: str) -> str:
    """canary description"""
    return common.weather()


if common.api == "anthropic":
    from strands.models.anthropic import AnthropicModel

    model = AnthropicModel(client_args={"base_url": common.base}, model_id=common.model, max_tokens=1024)
else:
    from strands.models.openai import OpenAIModel

    model = OpenAIModel(client_args={"base_url": common.base}, model_id=common.model)
attributes = {"user.id": common.USER, "session.id": common.SESSION, "tenant.id": common.TENANT} if common.tenanted else {}
# Its own retries stand above those of the SDK; the default waits minutes.
retry = ModelRetryStrategy(max_attempts=2, initial_delay=1, max_delay=1)
agent = Agent(name="answer_question", model=model, tools=[get_weather] if common.script == "tools" else [], trace_attributes=attributes, callback_handler=None, retry_strategy=retry)
with common.tolerated():
    agent(common.PROMPT)
common.finish(provider)
