"""A LangChain agent, which LangGraph runs, under the instrumentation named by INSTRUMENTATION."""

import os

import common

provider = common.start()
if os.environ["INSTRUMENTATION"] == "openinference":
    from openinference.instrumentation.langchain import LangChainInstrumentor
else:
    from opentelemetry.instrumentation.langchain import LangchainInstrumentor as LangChainInstrumentor
LangChainInstrumentor().instrument()

from langchain.agents import create_agent  # noqa: E402
from langchain_core.tools import tool  # noqa: E402


@tool
def get_weather(city: str) -> str:
    """canary description"""
    return common.weather()


if common.api == "anthropic":
    from langchain_anthropic import ChatAnthropic

    model = ChatAnthropic(model=common.model, base_url=common.base, max_tokens=1024)
elif common.api == "gemini":
    from langchain_google_genai import ChatGoogleGenerativeAI

    model = ChatGoogleGenerativeAI(model=common.model, base_url=common.base)
else:
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(model=common.model, base_url=common.base, use_responses_api=common.api == "responses", stream_usage=common.usage)
agent = create_agent(model, tools=[get_weather] if common.script == "tools" else [], system_prompt="canary instruction", name="answer_question")
question = {"messages": [{"role": "user", "content": common.PROMPT}]}
config = {"metadata": {"user_id": common.USER, "session_id": common.SESSION, "tenant_id": common.TENANT}} if common.tenanted else {}
with common.request(), common.tolerated():
    if common.stream:
        for _ in agent.stream(question, config, stream_mode="messages"):
            pass
    else:
        agent.invoke(question, config)
common.finish(provider)
