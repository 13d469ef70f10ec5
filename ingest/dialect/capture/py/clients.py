"""Plain client spans under an agent's root span: requests and httpx to the provider, and sqlite."""

import sqlite3

import common
from opentelemetry import trace
from opentelemetry.instrumentation.httpx import HTTPXClientInstrumentor
from opentelemetry.instrumentation.requests import RequestsInstrumentor
from opentelemetry.instrumentation.sqlite3 import SQLite3Instrumentor

provider = common.start()
HTTPXClientInstrumentor().instrument()
RequestsInstrumentor().instrument()
SQLite3Instrumentor().instrument()

import httpx  # noqa: E402
import requests  # noqa: E402

tracer = trace.get_tracer("app")
with tracer.start_as_current_span("invoke_agent answer_question", attributes={"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "answer_question"}):
    body = {"model": common.model, "messages": [{"role": "user", "content": common.PROMPT}]}
    url = f"{common.base}/chat/completions"
    if common.mode == "requests":
        requests.post(url, json=body, timeout=10).raise_for_status()
    elif common.mode == "httpx":
        httpx.post(url, json=body).raise_for_status()
    elif common.mode == "db":
        db = sqlite3.connect(":memory:")
        cursor = db.cursor()
        cursor.execute("CREATE TABLE answers (id INTEGER PRIMARY KEY, city TEXT)")
        cursor.execute("INSERT INTO answers (city) VALUES (?)", ("canary town",))
        cursor.execute("SELECT id FROM answers WHERE city = ?", ("canary town",))
    elif common.mode == "tool":
        # The database call is the work of a tool: one tool call, not two.
        with tracer.start_as_current_span("execute_tool lookup", attributes={"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "lookup", "gen_ai.tool.call.id": "call_1"}):
            sqlite3.connect(":memory:").cursor().execute("SELECT ?", ("canary town",))
            httpx.get(f"{common.os.environ['CAPTURE_PROVIDER']}/bill")
common.finish(provider)
