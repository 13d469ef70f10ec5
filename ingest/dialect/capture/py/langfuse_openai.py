"""Langfuse for Python: its client and its wrapper of the OpenAI module."""

import contextlib

import common
from langfuse import Langfuse, observe, propagate_attributes
from langfuse.openai import OpenAI

langfuse = Langfuse(public_key="pk-lf-none", secret_key="sk-lf-none", host=common.otlp)
client = OpenAI(base_url=common.base)


@observe(name="answer-question", as_type="agent")
def answer():
    common.openai(client)


attributes = contextlib.nullcontext()
if common.tenanted:
    attributes = propagate_attributes(user_id=common.USER, session_id=common.SESSION, metadata={"tenant": common.TENANT}, tags=["support"], trace_name="answer")
with common.tolerated(), attributes:
    answer()
langfuse.flush()
langfuse.shutdown()
