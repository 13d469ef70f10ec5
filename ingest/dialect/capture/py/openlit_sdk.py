"""A provider SDK under OpenLIT, called from a web handler."""

import common

provider = common.start()

import openlit  # noqa: E402

openlit.init(disable_metrics=True, capture_message_content=False)

with common.request() as span:
    if common.tenanted:
        span.set_attributes({"user.id": common.USER, "session.id": common.SESSION, "tenant.id": common.TENANT})
    if common.api == "anthropic":
        import anthropic

        common.anthropic(anthropic.Anthropic(base_url=common.base))
    else:
        import openai

        common.openai(openai.OpenAI(base_url=common.base))
common.finish(provider)
