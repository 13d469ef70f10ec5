// The set-ups that are recorded: script, packages whose versions are kept, scenarios, and in plain words what
// each emitter loses. A scenario is <api>-<mode>; js/lib.mjs and py/common.py say what a mode does.

const each = (api, ...modes) => modes.map((m) => `${api}-${m}`);
const FAILING = ['retry-429', 'retry-500', 'always-429'];

const AISDK = [
  ...each('chat', 'plain', 'cached', 'reasoning', 'tools', 'stream', 'abort', 'client-abort', 'tenant', ...FAILING),
  ...each('responses', 'cached', 'cachewrite', 'reasoning', 'stream'),
  'embeddings',
  ...each('anthropic', 'plain', 'cached', 'smallcache', 'tools', 'stream', 'abort', 'retry-429'),
  ...each('gemini', 'cached', 'reasoning', 'tools', 'stream-reasoning'),
];
const aisdk = (n) => ({
  name: `aisdk${n}`, file: 'aisdk.mjs', vars: { AISDK: String(n) }, scenarios: AISDK,
  packages: [`ai${n}`, `ai${n}-openai`, `ai${n}-anthropic`, `ai${n}-google`],
  names: { [`ai${n}`]: 'ai', [`ai${n}-openai`]: '@ai-sdk/openai', [`ai${n}-anthropic`]: '@ai-sdk/anthropic', [`ai${n}-google`]: '@ai-sdk/google' },
});


const OPENAI = [
  ...each('chat', 'plain', 'cached', 'cachewrite', 'reasoning', 'tools', 'stream', 'stream-nousage', 'abort', 'client-abort', 'tenant', ...FAILING),
  ...each('responses', 'cached', 'reasoning', 'tools', 'stream'),
  'embeddings',
];
const ANTHROPIC = each('anthropic', 'plain', 'cached', 'smallcache', 'reasoning', 'tools', 'stream', 'abort', 'client-abort', 'tenant', ...FAILING);

const PY_OPENAI = OPENAI.filter((s) => s !== 'chat-client-abort');
const PY_ANTHROPIC = ANTHROPIC.filter((s) => s !== 'anthropic-client-abort');

const AGENT_PY = [
  ...each('chat', 'plain', 'cached', 'cachewrite', 'reasoning', 'tools', 'stream', 'abort', 'tenant', ...FAILING),
  ...each('responses', 'reasoning', 'tools'),
  ...each('anthropic', 'plain', 'cached', 'smallcache', 'tools', 'stream'),
];
const AGENTS = [...each('responses', 'plain', 'cached', 'reasoning', 'tools', 'stream', 'tenant', 'retry-429', 'always-429'), ...each('chat', 'cached', 'tools', 'stream')];
const LITELLM = [
  ...each('chat', 'plain', 'cached', 'reasoning', 'tools', 'stream', 'stream-nousage', 'abort', 'tenant', ...FAILING),
  'responses-cached', 'embeddings',
  ...each('anthropic', 'plain', 'cached', 'smallcache', 'tools', 'stream'),
  ...each('gemini', 'cached', 'reasoning'),
];

const ADK = [
  ...each('gemini', 'plain', 'cached', 'reasoning', 'tools', 'stream', 'retry-429', 'always-429'),
  ...each('chat', 'cached', 'reasoning', 'tools', 'stream', 'retry-429'),
  ...each('anthropic', 'cached', 'smallcache', 'stream'),
];
const LANGCHAIN = [
  ...each('chat', 'plain', 'cached', 'reasoning', 'tools', 'stream', 'tenant', 'retry-429', 'always-429'),
  ...each('responses', 'cached', 'reasoning'),
  ...each('anthropic', 'plain', 'cached', 'smallcache', 'reasoning', 'tools', 'stream'),
  ...each('gemini', 'cached', 'reasoning', 'tools', 'stream'),
];

const CREWAI = [...each('chat', 'cached', 'reasoning', 'tools', 'stream', 'retry-429', 'always-429'), ...each('anthropic', 'cached', 'smallcache', 'tools')];
const AGENTFW = [
  ...each('chat', 'plain', 'cached', 'reasoning', 'tools', 'stream', 'tenant', 'retry-429', 'always-429'), 'responses-cached',
  ...each('anthropic', 'cached', 'smallcache', 'tools', 'stream'),
];

export const SETUPS = [
  { ...aisdk(5), comment: 'Inner spans doGenerate, doStream and doEmbed repeat on the outer span; the outer generateText holds the last step only. Anthropic input leaves the cache out; OpenAI and Google input contains it. generateText has no cache or reasoning attribute: for Anthropic and Google the raw usage is in ai.response.providerMetadata, for OpenAI chat the cached and reasoning counts are nowhere. Google output leaves thoughts out. Each attempt is an inner span of its own.' },
  { ...aisdk(6), comment: 'Inner spans repeat on the outer span, which sums the steps. Input contains the cache for every provider and output contains thoughts; inputTokenDetails.noCacheTokens says the uncached part. Google tool-use prompt tokens are in no attribute, only in ai.response.providerMetadata. The cache lifetimes of Anthropic are only in ai.response.providerMetadata. Each attempt is an inner span of its own.' },
  {
    name: 'openinference-js', file: 'sdk.mjs', vars: { INSTRUMENTATION: 'openinference' }, scenarios: [...OPENAI, ...ANTHROPIC],
    packages: ['@arizeai/openinference-instrumentation-openai', '@arizeai/openinference-instrumentation-anthropic', 'openai', '@anthropic-ai/sdk'],
    comment: 'Input contains the cache. The chat cache write has no attribute (only in output.value). Chat streams carry no tokens although the usage chunk arrives; embeddings carry none either. An OpenAI call that fails exports no span, retries inside the SDK are invisible, a dropped Anthropic stream exports no span. Cache lifetimes are only in output.value, and streams have no response id.',
  },
  {
    name: 'traceloop-js', file: 'sdk.mjs', vars: { INSTRUMENTATION: 'traceloop' }, scenarios: [...OPENAI, ...ANTHROPIC],
    packages: ['@traceloop/instrumentation-openai', '@traceloop/instrumentation-anthropic', 'openai', '@anthropic-ai/sdk'],
    comment: 'OpenAI spans have no cache, cache-write or reasoning attribute; chat and responses streams carry no tokens; embeddings and failed OpenAI calls have no span. Anthropic input leaves the cache out, which no arithmetic tells when the cache is smaller than the input; Anthropic spans have no response id. Retries are invisible.',
  },
  {
    name: 'langfuse-js', file: 'langfuse.mjs', scenarios: OPENAI,
    packages: ['@langfuse/openai', '@langfuse/otel', '@langfuse/tracing', 'openai'],
    comment: 'Usage is JSON in langfuse.observation.usage_details with disjoint buckets: output leaves reasoning out and must be added to output_reasoning_tokens, input leaves the cached part and input_cache_write_tokens out. No response id. Embeddings carry no usage. Retries are invisible, a failed call has level ERROR but no error status, a stream that ends early has no generation span.',
  },
  {
    name: 'contrib-undici-js', file: 'sdk.mjs', vars: { INSTRUMENTATION: 'contrib' }, scenarios: OPENAI,
    packages: ['@opentelemetry/instrumentation-openai', '@opentelemetry/instrumentation-undici', 'openai'],
    comment: 'No cache, cache-write or reasoning attribute for chat or responses: absent is not zero. HTTP children show each attempt, with x-stainless-retry-count as a string array. A stream that ends early has no model span, only its HTTP span.',
  },
  {
    name: 'anthropic-sdk-js', file: 'sdk.mjs', vars: { INSTRUMENTATION: 'native' }, scenarios: ANTHROPIC,
    packages: ['anthropic-native'], names: { 'anthropic-native': '@anthropic-ai/sdk' },
    comment: 'The SDK traces by itself. Input contains the cache, written tokens are split by lifetime in anthropic.usage.cache_creation.*. http.request.resend_count on the model span counts retries and is absent when there were none. A stream that ends early keeps input and cache but has no output.',
  },
  {
    name: 'anthropic-sdk-undici-js', file: 'sdk.mjs', vars: { INSTRUMENTATION: 'native', UNDICI: '1' }, scenarios: each('anthropic', 'cached', ...FAILING),
    packages: ['anthropic-native', '@opentelemetry/instrumentation-undici'], names: { 'anthropic-native': '@anthropic-ai/sdk' },
    comment: 'As the SDK alone, with one HTTP child for each attempt: resend_count and the children count the same retries, so take the larger, not the sum.',
  },
  { ...aisdk(7), comment: 'invoke_agent repeats the sum of its chat spans. Input contains the cache, the written part is called cache_creation without lifetimes; reasoning has no attribute; Google tool-use prompt tokens are inside input. One chat span stands for all attempts, also when all of them fail. An aborted stream has spans without usage. The runtime context is not exported without an option.' },
  {
    ...aisdk(7), name: 'aisdk7-full', vars: { AISDK: '7', AISDK_FULL: '1' },
    scenarios: [...each('chat', 'cached', 'reasoning', 'tools', 'tenant'), ...each('anthropic', 'cached', 'tools'), ...each('gemini', 'reasoning')],
    comment: 'With usage, providerMetadata and runtimeContext switched on the details (noCacheTokens, reasoningTokens, raw provider usage) stand on three levels: root, step and chat. Attribution is ai.settings.context.*, on the root and the steps, not on the chat spans.',
  },
  {
    name: 'langsmith-js', file: 'langsmith.mjs', scenarios: OPENAI,
    vars: { LANGSMITH_TRACING: 'true', LANGSMITH_OTEL_ENABLED: 'true', LANGSMITH_API_KEY: 'none', LANGSMITH_PROJECT: 'capture' },
    packages: ['langsmith', 'openai'],
    comment: 'Input contains the cache; details are JSON in gen_ai.usage.input_token_details and langsmith.usage_metadata, cache counts have no attribute of their own. The chain span has a response id and gen_ai.system langchain but no usage: it is not a call. A stream has no span of its own: its attributes are written on the enclosing traceable span, which becomes kind llm. Cache writes are lost. Failed calls have no error status. Embeddings have no span.',
  },
  {
    name: 'contrib-py', env: 'compat', file: 'sdk.py', vars: { INSTRUMENTATION: 'contrib' }, scenarios: PY_OPENAI,
    packages: ['opentelemetry-instrumentation-openai-v2', 'openai'],
    comment: 'No cache, cache-write or reasoning attribute: absent is not zero. The responses API has no span at all. A stream without usage has no usage attributes rather than zeros. Retries are invisible. The scope has no version.',
  },
  {
    name: 'contrib-latest-httpx-py', env: 'compat', file: 'sdk.py', scenarios: [...each('chat', 'plain', 'cached', 'reasoning', 'stream', ...FAILING), ...each('responses', 'cached', 'reasoning', 'tools'), 'embeddings'],
    vars: { INSTRUMENTATION: 'contrib', HTTPX: '1', OTEL_INSTRUMENTATION_HTTP_CAPTURE_HEADERS_CLIENT_REQUEST: 'x-stainless-retry-count', OTEL_SEMCONV_STABILITY_OPT_IN: 'http,gen_ai_latest_experimental' },
    packages: ['opentelemetry-instrumentation-openai-v2', 'opentelemetry-instrumentation-httpx', 'openai'],
    comment: 'With the newest conventions switched on the scope of chat spans becomes opentelemetry.util.genai.handler while embeddings keep opentelemetry.instrumentation.openai_v2. Still no cache or reasoning attribute and no responses span. HTTP children show each attempt; the captured header is http.request.header.x_stainless_retry_count, with underscores.',
  },
  {
    name: 'contrib-genai-py', env: 'openai2', file: 'sdk.py', vars: { INSTRUMENTATION: 'genai' }, scenarios: [...PY_OPENAI, ...PY_ANTHROPIC],
    packages: ['opentelemetry-instrumentation-genai-openai', 'opentelemetry-instrumentation-genai-anthropic', 'openai', 'anthropic'],
    comment: 'Input contains the cache, which is split into cache_read and cache_write; reasoning.output_tokens is set. Zero counts are omitted. Cache lifetimes are lost. A dropped Anthropic stream reports the stub output 1. Retries are invisible. Responses calls are called chat, with openai.api.type=responses.',
  },
  {
    name: 'openinference-py', env: 'openai3', file: 'sdk.py', vars: { INSTRUMENTATION: 'openinference' }, scenarios: [...PY_OPENAI, ...PY_ANTHROPIC],
    packages: ['openinference-instrumentation-openai', 'openinference-instrumentation-anthropic', 'openai', 'anthropic'],
    comment: 'Input contains the cache; cache writes and reasoning have attributes. The Anthropic SDK from version 2 traces by itself: its span is a child of the instrumentation\'s span and both carry the same usage, so only one of the two is a call. Chat streams carry usage when it was asked for. Retries are visible only on the SDK\'s own Anthropic span (http.request.resend_count).',
  },
  {
    name: 'traceloop-py', env: 'openai2', file: 'sdk.py', vars: { INSTRUMENTATION: 'traceloop' }, scenarios: [...PY_OPENAI, ...PY_ANTHROPIC],
    packages: ['opentelemetry-instrumentation-openai', 'opentelemetry-instrumentation-anthropic', 'openai', 'anthropic'],
    comment: 'Input contains the cache; OpenAI cache writes have no attribute, Anthropic lifetimes are lost. An Anthropic stream counts one output token too many (the stub of its first event is added to the cumulative count) and a dropped one has no span. A dropped OpenAI stream is a span without usage or error. Reasoning is gen_ai.usage.reasoning_tokens and missing for Anthropic. Retries are invisible.',
  },
  {
    name: 'pydantic-ai', env: 'openai3', file: 'pydantic_agent.py', scenarios: AGENT_PY,
    packages: ['pydantic-ai-slim', 'openai', 'anthropic'],
    comment: 'Input contains the cache; reasoning is only in gen_ai.usage.details.reasoning_tokens; of the Anthropic lifetimes only details.ephemeral_1h_input_tokens is kept. Zero counts are omitted. The run span has aggregated_usage and must not be added. The Anthropic SDK traces by itself below the chat span with the same usage. operation.cost is the list price and knows the lifetimes. Retries inside the SDK are invisible.',
  },
  {
    name: 'pydantic-ai-logfire', env: 'openai3', file: 'pydantic_agent.py', vars: { LOGFIRE: '1' }, scenarios: ['chat-cached', 'chat-tools', 'chat-retry-429', 'anthropic-cached', 'chat-stream'],
    packages: ['pydantic-ai-slim', 'logfire', 'openai', 'anthropic'],
    comment: 'As without logfire: logfire only configures the exporter. Trace ids start with the time.',
  },
  {
    name: 'logfire-openai', env: 'openai3', file: 'logfire_openai.py', scenarios: ['chat-cached', 'chat-stream', 'chat-stream-nousage', 'chat-tools', 'chat-tenant', 'chat-always-429', 'responses-reasoning', 'embeddings', 'anthropic-cached', 'anthropic-stream'],
    packages: ['logfire', 'openai', 'anthropic'],
    comment: 'gen_ai.usage.raw holds the provider\'s usage object, with Anthropic lifetimes. A stream has two spans: the first without usage, then a sibling of kind log ("streaming response from … took") that carries usage and response id: it is the same call. Retries are invisible. Its scrubbing replaces the value of session.id by "[Scrubbed due to \'session\']". operation.cost is the list price. Failed calls have no token attributes.',
  },
  {
    name: 'strands', env: 'openai2', file: 'strands_agent.py', scenarios: [...each('chat', 'plain', 'cached', 'tools', 'tenant', 'always-429', 'retry-429', 'abort'), ...each('anthropic', 'plain', 'cached', 'smallcache', 'tools')],
    packages: ['strands-agents', 'openai', 'anthropic'],
    comment: 'Input contains the cache, also for Anthropic, in this version. Both spellings of every count stand on the span, the cache in four attributes. gen_ai.system is the framework, not the provider; there is no response model and no response id. invoke_agent repeats the sum. Reasoning and Anthropic lifetimes are lost. Retries of the SDK are invisible, those of the agent are failed sibling chat spans. A dropped stream has no usage.',
  },
  {
    name: 'litellm', env: 'openai2', file: 'litellm_sdk.py', scenarios: LITELLM, vars: { OTEL_EXPORTER_OTLP_PROTOCOL: 'http/protobuf', LITELLM_LOCAL_MODEL_COST_MAP: 'True' },
    packages: ['litellm', 'openai'],
    comment: 'A synchronous call under a span of the app writes its attributes on that span, the web handler\'s, which then looks like a model call; with two calls under one span only the last survives there, and the first is left only in its child raw_gen_ai_request, whose usage is a printed Python dict. Streams start a trace of their own. Input contains the cache; cache and reasoning have no attribute, only the printed dicts (metadata.usage_object, llm.<provider>.usage) have them, and gen_ai.cost.* bills them, lifetimes included. Empty strings stand for null. A stream without usage says 0 and 0. A failed call that is not a stream leaves nothing. The response id of Anthropic is invented.',
  },
  {
    name: 'litellm-noroot', env: 'openai2', file: 'litellm_sdk.py', scenarios: ['chat-cached', 'anthropic-cached', 'chat-retry-429'], vars: { ROOT: '0', OTEL_EXPORTER_OTLP_PROTOCOL: 'http/protobuf', LITELLM_LOCAL_MODEL_COST_MAP: 'True' },
    packages: ['litellm', 'openai'],
    comment: 'Without a span of the app the call is litellm_request, with the printed provider usage in its child raw_gen_ai_request.',
  },
  {
    name: 'litellm-early', env: 'openai2', file: 'litellm_sdk.py', scenarios: ['chat-cached', 'chat-tools', 'anthropic-cached'], vars: { EARLY: '1', OTEL_EXPORTER_OTLP_PROTOCOL: 'http/protobuf', LITELLM_LOCAL_MODEL_COST_MAP: 'True' },
    packages: ['litellm', 'openai'],
    comment: 'The web handler answers at once: callbacks race with the end of its span, so the attributes of one call or of all calls are missing there. The printed usage in raw_gen_ai_request is then all there is.',
  },
  {
    name: 'litellm-v2', env: 'openai2', file: 'litellm_sdk.py', scenarios: LITELLM, vars: { LITELLM_OTEL_V2: 'true', OTEL_EXPORTER_OTLP_PROTOCOL: 'http/protobuf', LITELLM_LOCAL_MODEL_COST_MAP: 'True' },
    packages: ['litellm', 'openai'],
    comment: 'Only asynchronous calls make spans. Input contains the cache, split into cache_read and cache_creation; lifetimes and reasoning are lost; litellm.cost.total is the list price and knows the lifetimes that the span does not carry. A dropped stream carries a local estimate (input 10, output 5), a failed call 0 and 0. The user given as parameter is lost; the session becomes gen_ai.conversation.id. The response id of Anthropic is invented. One span stands for all attempts.',
  },
  {
    name: 'openai-agents-openinference', env: 'openai3', file: 'openai_agents.py', vars: { INSTRUMENTATION: 'openinference' },
    scenarios: AGENTS, comments: { 'chat-stream': 'The SDK does not ask for usage in chat streams.' },
    packages: ['openinference-instrumentation-openai-agents', 'openai-agents', 'openai'],
    comment: 'Two root spans of kind AGENT and CHAIN carry the workflow\'s name, turns are CHAIN spans. Responses calls: input contains the cache, all details have attributes and the raw response is in output.value. Chat calls (kind generation): only prompt and completion, no cache, no reasoning, no response id, request model only; their streams carry no tokens. User, session and tenant of the run are lost. Retries are invisible.',
  },
  {
    name: 'langfuse-py', env: 'openai2', file: 'langfuse_openai.py', scenarios: PY_OPENAI,
    packages: ['langfuse', 'openai'],
    comment: 'Usage details pass the shape of the API on: prompt_tokens and input_tokens contain the cache, completion_tokens contains reasoning. No response id. Embeddings carry {input}. Retries are invisible.',
  },
  {
    name: 'mcp-openinference', env: 'openai2', file: 'mcp_tools.py', vars: { INSTRUMENTATION: 'openinference' }, scenarios: ['chat-cached'],
    packages: ['mcp', 'openinference-instrumentation-mcp', 'openinference-instrumentation-openai', 'openai'],
    comment: 'The MCP SDK 2 traces by itself (scope mcp-python-sdk): a client span "MCP send tools/call" and below it the server\'s span with execute_tool are one tool call. The server\'s model call hangs below it, across processes. The instrumentation adds no span of its own.',
  },
  {
    name: 'mcp-traceloop', env: 'compat', file: 'mcp_tools.py', vars: { INSTRUMENTATION: 'traceloop' }, scenarios: ['chat-cached'],
    packages: ['mcp', 'opentelemetry-instrumentation-mcp', 'opentelemetry-instrumentation-openai', 'openai'],
    comment: 'get_weather.tool is the tool call; ResponseStreamWriter spans, also between the tool and the model call of the server, are plumbing. The server\'s spans are parents and children across processes and arrive first.',
  },
  {
    name: 'clients-py', env: 'openai2', file: 'clients.py', http: false, scenarios: ['chat-requests', 'chat-httpx', 'chat-db', 'chat-tool'],
    packages: ['opentelemetry-instrumentation-requests', 'opentelemetry-instrumentation-httpx', 'opentelemetry-instrumentation-sqlite3'],
    comment: 'Plain client spans. db.statement and http.url are the old names. The call to the provider by plain HTTP is a billed model call that no model span shows. Below a tool span a database or HTTP span is part of that tool call.',
  },
  {
    name: 'anthropic-sdk-py', env: 'openai3', file: 'sdk.py', vars: { INSTRUMENTATION: 'native' }, scenarios: PY_ANTHROPIC,
    packages: ['anthropic'],
    comment: 'As the SDK for Node: input contains the cache, lifetimes are split, http.request.resend_count counts retries and is absent when there were none. A stream that ends early has no output; error.type is connection_error.',
  },
  {
    name: 'contrib-genai-httpx-openai3', env: 'openai3', file: 'sdk.py', scenarios: ['chat-cached', 'chat-stream', ...each('chat', ...FAILING), 'responses-reasoning'],
    vars: { INSTRUMENTATION: 'genai', HTTPX: '1', OTEL_INSTRUMENTATION_HTTP_CAPTURE_HEADERS_CLIENT_REQUEST: 'x-stainless-retry-count', OTEL_SEMCONV_STABILITY_OPT_IN: 'http' },
    packages: ['opentelemetry-instrumentation-genai-openai', 'opentelemetry-instrumentation-httpx', 'openai'],
    comment: 'The OpenAI SDK from version 3 uses httpx2, which this HTTP instrumentation does not see: no HTTP children, so retries are invisible again.',
  },
  {
    name: 'openai-agents-genai', env: 'openai3', file: 'openai_agents.py', vars: { INSTRUMENTATION: 'genai' }, scenarios: AGENTS, comments: { 'chat-stream': 'The SDK does not ask for usage in chat streams.' },
    packages: ['opentelemetry-instrumentation-genai-openai-agents', 'opentelemetry-instrumentation-genai-openai', 'openai-agents', 'openai'],
    comment: 'invoke_workflow and invoke_agent carry no usage; the chat spans come from the instrumentation of the client and hang below the agent. The group id becomes gen_ai.conversation.id. Trace metadata is lost.',
  },
  {
    name: 'openai-agents-traceloop', env: 'openai3', file: 'openai_agents.py', vars: { INSTRUMENTATION: 'traceloop' }, scenarios: AGENTS, comments: { 'chat-stream': 'The SDK does not ask for usage in chat streams.' },
    packages: ['opentelemetry-instrumentation-openai-agents', 'openai-agents', 'openai'],
    comment: 'Responses calls carry usage (input contains the cache); calls by the chat API are spans without any usage. gen_ai.provider.name stands on agent and workflow spans too. User, session and tenant of the run are lost.',
  },
  {
    name: 'langfuse5-py', env: 'openai3', file: 'langfuse_openai.py', scenarios: PY_OPENAI,
    packages: ['langfuse', 'openai'],
    comment: 'As version 3: usage details pass the shape of the API on, inclusive. Metadata values are JSON texts ("acme" in quotes).',
  },
  {
    name: 'gemini-cli', file: 'cli.mjs', logs: true, vars: { CLI: 'gemini' }, scenarios: each('gemini', 'plain', 'cached', 'smallcache', 'reasoning', 'tools', 'retry-429'),
    packages: ['@google/gemini-cli'],
    comment: 'Usage is in the log event gemini_cli.api_response, which lies in no trace; api_error and tool_call lie in a trace of that one call. The spans llm_call and tool_call tell of the same calls, have no counts and are sent also with traces off. Thoughts and tool-use prompts stand beside output and input. The event gen_ai.client.inference.operation.details repeats input and output, without cache and thoughts. Each attempt has an event. The response id is only in that event. service.version is that of Node.',
  },
  {
    name: 'claude-code', file: 'cli.mjs', logs: true, vars: { CLI: 'claude' }, scenarios: each('anthropic', 'plain', 'cached', 'smallcache', 'reasoning', 'tools', 'tenant', ...FAILING),
    packages: ['@anthropic-ai/claude-code'],
    comment: 'Log events alone, in no trace. Input leaves the cache out; the written part is split by lifetime. Reasoning is lost. An attempt that failed and was tried again has no event, also in the number of attempts: retries are invisible.',
    comments: { 'anthropic-always-429': 'Two tries again are allowed, not the ten of the default.' },
  },
  {
    name: 'claude-code-traces', file: 'cli.mjs', logs: true, vars: { CLI: 'claude', TRACES: '1' }, scenarios: each('anthropic', 'cached', 'tools', 'retry-429'),
    packages: ['@anthropic-ai/claude-code'],
    comment: 'With its traces the events lie in the trace of the interaction, and claude_code.llm_request is a second record of each call: request_id is on both. The span counts the attempts; its written cache has no lifetime, that of the event has.',
  },
  {
    name: 'codex', file: 'cli.mjs', logs: true, vars: { CLI: 'codex' }, scenarios: each('responses', 'plain', 'cached', 'cachewrite', 'reasoning', 'tools', ...FAILING),
    packages: ['@openai/codex'],
    comment: 'Log events alone, in no trace and without a time of their own: only observed and event.timestamp tell it. The end of the stream and its counts are two events codex.sse_event of kind response.completed. Input contains the cache; tool_token_count is the total. Each attempt has an event; a run that ends in an error exports nothing. The model is the one that was asked for. No response id. The spans of its trace_exporter, hundreds for a turn, have the counts on handle_responses, which names no model; they are not recorded.',
  },
  {
    name: 'langchain-openinference-js', env: 'frameworks', file: 'frameworks.mjs', vars: { FRAMEWORK: 'langchain' }, scenarios: [...each('chat', 'plain', 'cached', 'reasoning', 'tools', 'tenant', 'retry-429', 'always-429'), 'responses-reasoning', ...each('anthropic', 'cached', 'smallcache', 'tools')],
    packages: ['@arizeai/openinference-instrumentation-langchain', 'langchain', '@langchain/core', '@langchain/openai', '@langchain/anthropic'],
    comment: 'Chain spans LangGraph, model_request and __start__ carry no usage; the LLM span has it, inclusive, and the whole answer with the lifetimes of Anthropic in output.value. Session is an attribute, user and tenant only members of the JSON in metadata. Retries are invisible: one span stands for all attempts, also when all of them fail.',
  },
  {
    name: 'mastra', env: 'frameworks', file: 'frameworks.mjs', vars: { FRAMEWORK: 'mastra' }, scenarios: [...each('chat', 'plain', 'cached', 'reasoning', 'tools', 'stream', 'tenant', 'always-429'), 'responses-reasoning', ...each('anthropic', 'cached', 'smallcache', 'tools'), 'gemini-reasoning'],
    packages: ['@mastra/core', '@mastra/observability', '@mastra/otel-exporter'],
    comment: 'model_generation, agent_step and invoke_agent carry no usage; the span of kind model_inference has it, with numbers as texts, inclusive, and no response id. Cache lifetimes of Anthropic and tool-use prompt tokens of Gemini are only in mastra.metadata.body of the step above it, which holds the whole answer where it was no stream. A call that fails has finish reason error and no error status; only the agent has one. Nothing is tried again.',
  },
  {
    name: 'openlit-js', env: 'frameworks', file: 'frameworks.mjs', vars: { FRAMEWORK: 'openlit' }, scenarios: [...each('chat', 'plain', 'cached', 'cachewrite', 'reasoning', 'tools', 'stream', 'stream-nousage', 'retry-429', 'always-429'), ...each('responses', 'cached', 'reasoning'), 'embeddings', ...each('anthropic', 'plain', 'cached', 'smallcache', 'reasoning', 'tools', 'stream')],
    packages: ['openlit', 'openai', '@anthropic-ai/sdk'],
    comment: 'Input contains the cache for OpenAI and leaves it out for Anthropic; written tokens have no lifetime. Reasoning is lost for chat and for Anthropic. A cache of zero has no attribute. Of a stream without usage the counts are guessed from the texts, and nothing tells them from real ones. Streams of Anthropic count the first output token twice. Each attempt is an HTTP child.',
  },
  {
    name: 'genkit-js', env: 'frameworks', file: 'frameworks.mjs', vars: { FRAMEWORK: 'genkit' }, scenarios: [...each('chat', 'plain', 'cached', 'reasoning', 'tools', 'stream', 'retry-429', 'always-429')],
    packages: ['genkit', '@genkit-ai/compat-oai'],
    comment: 'All that is said of usage is in the JSON of genkit:output on the span of subtype model: its own counts, without cache and reasoning, and the whole answer under raw. The model is in genkit:name, the host is not told. generate repeats the counts. One span stands for all attempts.',
  },
  {
    name: 'litellm-proxy', env: 'gateway', file: 'litellm_proxy.py', scenarios: ['chat-cached', 'chat-tools', 'chat-stream', 'chat-retry-429', 'anthropic-cached'],
    packages: ['litellm', 'openinference-instrumentation-openai', 'openai'],
    comment: 'The gateway and its client have traces of their own: the client\'s ChatCompletion and the gateway\'s litellm_request and raw_gen_ai_request are three records of one call. litellm_request has input with the cache but no cache count, the raw one has the whole usage. The spans auth, router, self, proxy_pre_call and those of FastAPI are plumbing.',
  },
  {
    name: 'litellm-proxy-context', env: 'gateway', file: 'litellm_proxy.py', vars: { PROPAGATE: '1' }, scenarios: ['chat-cached', 'chat-tools', 'chat-retry-429'],
    packages: ['litellm', 'openinference-instrumentation-openai', 'openai'],
    comment: 'As litellm-proxy, with the client\'s context sent along: the gateway\'s spans hang below the root of the client\'s trace, beside the span of the client\'s call.',
  },
  {
    name: 'adk', env: 'adk', file: 'adk_agent.py', vars: { LITELLM_LOCAL_MODEL_COST_MAP: 'True' }, scenarios: ADK,
    packages: ['google-adk', 'google-genai', 'litellm'],
    comment: 'Input contains the cache, also for Claude, by its own client or by LiteLLM; the written part is cache_creation without lifetimes. No response model, no response id and no user; the session becomes gen_ai.conversation.id. Models that LiteLLM asks for are named with their provider, and their output has reasoning added to it a second time. One span stands for all attempts. invoke_agent and invoke_workflow carry no usage.',
  },
  {
    name: 'adk1', env: 'adk1', file: 'adk_agent.py', vars: { LITELLM_LOCAL_MODEL_COST_MAP: 'True' },
    scenarios: [...each('gemini', 'cached', 'reasoning', 'tools', 'stream'), 'chat-reasoning', 'anthropic-cached'],
    packages: ['google-adk', 'google-genai', 'litellm'],
    comment: 'call_llm has the provider\'s usage as JSON in gcp.vertex.agent.llm_response, unless content is switched off. The span generate_content below it has input and output alone, thoughts left out, with gemini as system for every model, and the user. With LiteLLM the candidates contain thoughts, which the total tells; cache writes are lost. One span stands for all attempts.',
  },
  {
    name: 'adk1-nocontent', env: 'adk1', file: 'adk_agent.py', vars: { LITELLM_LOCAL_MODEL_COST_MAP: 'True', ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS: 'false' },
    scenarios: ['gemini-cached', 'gemini-reasoning', 'chat-reasoning'],
    packages: ['google-adk', 'google-genai', 'litellm'],
    comment: 'Without content the answer on call_llm is an empty object: cached tokens are nowhere, and thoughts only in gen_ai.usage.experimental.reasoning_tokens, outside the output for Gemini and inside for LiteLLM.',
  },
  {
    name: 'adk-openinference', env: 'adk', file: 'adk_agent.py', vars: { INSTRUMENTATION: 'openinference', LITELLM_LOCAL_MODEL_COST_MAP: 'True' }, scenarios: ADK,
    packages: ['openinference-instrumentation-google-adk', 'google-adk', 'google-genai', 'litellm'],
    comment: 'It writes on whatever span is current, which in this version of the ADK is invoke_agent: that span becomes the model call, and of several calls below it only the last is left. Counts of the ADK itself (gen_ai.usage.*, where output of LiteLLM\'s models has reasoning twice) stand beside llm.token_count.*, which has cache and reasoning but for LiteLLM no cache writes. User and session are on its own spans. llm.provider is google for every model. One span stands for all attempts.',
  },
  {
    name: 'adk-contrib', env: 'adk', file: 'adk_agent.py', vars: { INSTRUMENTATION: 'contrib' }, scenarios: each('gemini', 'plain', 'cached', 'reasoning', 'tools', 'stream', 'retry-429'),
    packages: ['opentelemetry-instrumentation-google-genai', 'google-adk', 'google-genai'],
    comment: 'The ADK leaves its own model span out and writes agent, session and invocation on that of the instrumentation, which has the response id. Tool-use prompt tokens are lost. One span stands for all attempts.',
  },
  {
    name: 'langchain-openinference', env: 'langchain', file: 'langchain_agent.py', vars: { INSTRUMENTATION: 'openinference' }, scenarios: LANGCHAIN,
    packages: ['openinference-instrumentation-langchain', 'langchain', 'langgraph', 'langchain-openai', 'langchain-anthropic', 'langchain-google-genai'],
    comment: 'Input contains the cache; the raw answer is in output.value, for Anthropic with lifetimes and response id. Streams have no response id and no lifetimes. The Anthropic SDK from version 2 traces by itself: its span hangs below the web handler, not below the LLM span, and carries the same usage. Run metadata is JSON in metadata. Retries are visible only on the SDK\'s own Anthropic span.',
  },
  {
    name: 'langchain-traceloop', env: 'langchain', file: 'langchain_agent.py', vars: { INSTRUMENTATION: 'traceloop' }, scenarios: LANGCHAIN,
    packages: ['opentelemetry-instrumentation-langchain', 'langchain', 'langgraph', 'langchain-openai', 'langchain-anthropic', 'langchain-google-genai'],
    comment: 'Input contains the cache. Anthropic writes that have a lifetime are lost: cache_creation is 0, because LangChain keeps them under their lifetimes alone. Reasoning is lost. The Anthropic SDK\'s own span is a sibling with the same response id and all counts. Each graph, node and agent has a span; making the agent is a trace of its own. Run metadata is traceloop.association.properties.*. Retries are invisible.',
  },
  {
    name: 'crewai-openinference', env: 'crewai', file: 'crewai_crew.py', vars: { INSTRUMENTATION: 'openinference', EVENTS: '1' }, scenarios: CREWAI,
    packages: ['openinference-instrumentation-crewai', 'crewai', 'openai', 'anthropic'],
    comment: 'Input contains the cache; cache writes and reasoning have no attribute, nor have response id and provider. The span of the kickoff has a total. The Anthropic SDK from version 2 traces by itself: its span hangs below the web handler, not below the LLM span, with the same counts and, where LLM spans have none, a response id. Each try of the agent is an LLM span of its own, every third beside the agent\'s span. Retries inside the SDK are invisible.',
  },
  {
    name: 'crewai-traceloop', env: 'crewai', file: 'crewai_crew.py', vars: { INSTRUMENTATION: 'traceloop' }, scenarios: CREWAI,
    packages: ['opentelemetry-instrumentation-crewai', 'crewai', 'openai', 'anthropic'],
    comment: 'It wraps a method that this version of CrewAI does not call for OpenAI and Anthropic: there are no LLM spans, and none of tools. What is left is crewai.crew.usage_metrics on crewai.workflow, a printed Python dict that sums the crew and names no model; gen_ai.request.model is on the agent\'s span, without counts. For Anthropic the SDK\'s own span is the call.',
  },
  {
    name: 'agent-framework', env: 'agentfw', file: 'agent_framework_agent.py', scenarios: AGENTFW,
    packages: ['agent-framework-core', 'agent-framework-openai', 'agent-framework-anthropic', 'openai', 'anthropic'],
    comment: 'invoke_agent repeats the sum of its chat spans with its own name as provider. Input contains the cache for OpenAI and leaves it out for Anthropic, under the same names; the SDK\'s own span below the chat span has it inside and tells the lifetimes. A failed call has only the framework\'s class as error.type, so its cause is lost. Retries inside the SDK are invisible, except on the Anthropic SDK\'s own span.',
  },
  {
    name: 'openlit', env: 'openlit', file: 'openlit_sdk.py',
    scenarios: [...each('chat', 'cached', 'reasoning', 'tools', 'stream', 'retry-429', 'always-429'), ...each('anthropic', 'cached', 'smallcache', 'tools', 'stream')],
    packages: ['openlit', 'openai', 'anthropic'],
    comment: 'Anthropic input leaves the cache out, OpenAI input contains it, under the same names; the span attribute gen_ai.client.token.usage is the total of what is shown. Reasoning and lifetimes are lost. gen_ai.usage.cost is 0 where its price table could not be fetched. It instruments the HTTP client as well, so each attempt is a child.',
  },
];
