"""A CrewAI crew of one agent and one task under the instrumentation named by INSTRUMENTATION."""

import os

os.environ["CREWAI_DISABLE_TELEMETRY"] = "true"
os.environ["CREWAI_TRACING_ENABLED"] = "false"

import common  # noqa: E402

provider = common.start()
if os.environ["INSTRUMENTATION"] == "openinference":
    from openinference.instrumentation.crewai import CrewAIInstrumentor

    CrewAIInstrumentor().instrument(skip_dep_check=True, use_event_listener=os.environ.get("EVENTS") == "1")
else:
    from opentelemetry.instrumentation.crewai import CrewAIInstrumentor

    CrewAIInstrumentor().instrument()

from crewai import LLM, Agent, Crew, Task  # noqa: E402
from crewai.tools import tool  # noqa: E402


@tool("get_weather")
def get_weather(city: str) -> str:
    """canary description"""
    return common.weather()


kind = {"anthropic": "anthropic", "gemini": "gemini"}.get(common.api, "openai")
model = LLM(model=f"{kind}/{common.model}", base_url=common.base, stream=common.stream)
# The instrumentation names spans after the description.
agent = Agent(role="answer_question", goal="canary goal", backstory="canary story", llm=model, tools=[get_weather] if common.script == "tools" else [])
task = Task(name="answer", description="answer", expected_output="canary answer", agent=agent)
with common.request():
    Crew(agents=[agent], tasks=[task], name="answers").kickoff()
common.finish(provider)
