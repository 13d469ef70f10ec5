"""LiteLLM's gateway with its otel callback, and a client of it under OpenInference, each with traces of its own.

PROPAGATE=1 has the client send its trace context along.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import common

home = tempfile.mkdtemp(prefix="capture-")
prefix = {"anthropic": "anthropic"}.get(common.api, "openai")
config = {
    "model_list": [{"model_name": common.model, "litellm_params": {"model": f"{prefix}/{common.model}", "api_base": common.base, "api_key": "none"}}],
    "litellm_settings": {"callbacks": ["otel"], "num_retries": 2, "telemetry": False},
    "general_settings": {"master_key": "sk-none"},
}
with open(f"{home}/config.yaml", "w") as f:
    json.dump(config, f)
with socket.socket() as s:
    s.bind(("127.0.0.1", 0))
    port = os.environ.get("GATEWAY_PORT") or str(s.getsockname()[1])
env = {**os.environ, "HOME": home, "OTEL_EXPORTER": "otlp_http", "OTEL_ENDPOINT": f"{common.otlp}/v1/traces", "OTEL_SERVICE_NAME": "gateway", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"}
gateway = subprocess.Popen([os.path.join(os.path.dirname(sys.executable), "litellm"), "--config", f"{home}/config.yaml", "--host", "127.0.0.1", "--port", port], env=env, cwd=home)
try:
    for _ in range(120):
        time.sleep(0.5)
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health/liveliness", timeout=1)
            break
        except OSError:
            continue
    from openinference.instrumentation.openai import OpenAIInstrumentor
    from openai import OpenAI
    from opentelemetry.propagate import inject

    provider = common.start()
    OpenAIInstrumentor().instrument()
    with common.request():
        headers = {}
        if os.environ.get("PROPAGATE"):
            inject(headers)
        common.openai(OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="sk-none", max_retries=0, default_headers=headers))
    common.finish(provider)
    time.sleep(7)  # the gateway exports every five seconds
finally:
    gateway.terminate()
    gateway.wait(20)
