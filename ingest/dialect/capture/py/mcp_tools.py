"""An agent's tool call to an MCP server over stdio, client and server under INSTRUMENTATION.

The server is this file run with argument "server": it asks a model itself, so its spend hangs below the tool."""

import asyncio
import os
import sys

import common

which = os.environ["INSTRUMENTATION"]
provider = common.start()
if which == "openinference":
    from openinference.instrumentation.mcp import MCPInstrumentor
    from openinference.instrumentation.openai import OpenAIInstrumentor
else:
    from opentelemetry.instrumentation.mcp import McpInstrumentor as MCPInstrumentor
    from opentelemetry.instrumentation.openai import OpenAIInstrumentor
MCPInstrumentor().instrument()
OpenAIInstrumentor().instrument()

import openai  # noqa: E402


def serve():
    try:
        from mcp.server.fastmcp import FastMCP as Server
    except ImportError:
        from mcp.server import MCPServer as Server
    server = Server("weather")

    @server.tool()
    def get_weather(city: str) -> str:
        common.openai(openai.OpenAI(base_url=common.base))
        return common.weather()

    server.run()


async def call():
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client
    from opentelemetry import trace

    with trace.get_tracer("app").start_as_current_span("POST /ask", kind=trace.SpanKind.SERVER):
        params = StdioServerParameters(command=sys.executable, args=[__file__, "server"], env=dict(os.environ))
        async with stdio_client(params) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            await session.list_tools()
            await session.call_tool("get_weather", {"city": "canary town"})


if sys.argv[1:] == ["server"]:
    serve()
else:
    asyncio.run(call())
common.finish(provider)
