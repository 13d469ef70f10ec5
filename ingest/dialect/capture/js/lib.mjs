// What every Node set-up shares: the scenario, the tracer provider, the app's root span and the calls.

import { createRequire } from 'node:module';
import { SpanKind, trace } from '@opentelemetry/api';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http';
import { resourceFromAttributes } from '@opentelemetry/resources';
import { BatchSpanProcessor, NodeTracerProvider } from '@opentelemetry/sdk-trace-node';
import { registerInstrumentations } from '@opentelemetry/instrumentation';

export const require = createRequire(import.meta.url);

const MODES = {
  stream: { script: 'cached', stream: true, usage: true },
  'stream-nousage': { script: 'cached', stream: true, usage: false },
  'stream-tools': { script: 'tools', stream: true, usage: true },
  'stream-reasoning': { script: 'reasoning', stream: true, usage: true },
  abort: { script: 'abort', stream: true, usage: true },
  'client-abort': { script: 'slow', stream: true, usage: true, abort: true },
  tenant: { script: 'plain', tenant: true },
};
const MODELS = { chat: 'gpt-5', responses: 'gpt-5', embeddings: 'text-embedding-3-small', anthropic: 'claude-sonnet-4-5', gemini: 'gemini-2.5-pro' };
const PATHS = { chat: 'openai/v1', responses: 'openai/v1', embeddings: 'openai/v1', anthropic: 'anthropic', gemini: 'gemini/v1beta' };

const name = process.env.CAPTURE_SCENARIO;
const [api, ...rest] = name.split('-');
const mode = rest.join('-') || 'plain';
const settings = MODES[mode] ?? { script: mode };
export const sc = { name, api, mode, model: MODELS[api], base: `${process.env.CAPTURE_PROVIDER}/${settings.script}/${PATHS[api]}`, ...settings };

export const TENANT = 'acme', USER = 'user-7', SESSION = 'session-3';
export const PROMPT = 'canary question';
export const weather = () => ({ temperature: 21, note: 'canary weather' });

export function start({ instrumentations = [], processors } = {}) {
  const tracerProvider = new NodeTracerProvider({ resource: resourceFromAttributes({ 'service.name': process.env.OTEL_SERVICE_NAME }), spanProcessors: processors ?? [new BatchSpanProcessor(new OTLPTraceExporter())] });
  tracerProvider.register();
  registerInstrumentations({ tracerProvider, instrumentations });
  return tracerProvider;
}

// request runs f as a web handler would: under a SERVER span of the app. An error of the provider ends the
// request with status 502, as an app without a fallback would answer.
export function request(f) {
  return trace.getTracer('app').startActiveSpan('POST /ask', { kind: SpanKind.SERVER, attributes: { 'http.request.method': 'POST', 'http.route': '/ask' } }, async (span) => {
    try {
      await f(span);
      span.setAttribute('http.response.status_code', 200);
    } catch (err) {
      tolerate(err);
      span.setAttribute('http.response.status_code', 502);
    } finally {
      span.end();
    }
  });
}

// tolerate lets pass only the failures that the script asked for.
export function tolerate(err) {
  if (!['always-429', 'abort', 'client-abort'].includes(sc.mode)) throw err;
}

// Some stream wrappers leave the second half of a dropped stream without a handler, which ends the process.
if (settings.script === 'abort') process.on('uncaughtException', () => {});

// finish gives stream wrappers a moment to end their spans, then exports and ends the process.
export async function finish(tracerProvider) {
  await new Promise((r) => setTimeout(r, 150));
  await tracerProvider.forceFlush();
  await tracerProvider.shutdown();
}

const PARAMETERS = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'], additionalProperties: false };

export async function openai(client) {
  const signal = sc.abort ? new AbortController() : undefined;
  const drain = async (stream) => { for await (const _ of stream) if (sc.abort) return setTimeout(() => signal.abort(), 60) && (await new Promise((r) => setTimeout(r, 120))); };
  const options = signal ? { signal: signal.signal } : undefined;
  if (sc.api === 'embeddings') return client.embeddings.create({ model: sc.model, input: [PROMPT] }, options);
  if (sc.api === 'responses') {
    const tools = sc.script === 'tools' ? [{ type: 'function', name: 'get_weather', parameters: PARAMETERS, strict: true }] : undefined;
    const input = [{ role: 'user', content: PROMPT }];
    for (;;) {
      const r = await client.responses.create({ model: sc.model, input, tools, store: false, ...(sc.stream ? { stream: true } : {}) }, options);
      if (sc.stream) return drain(r);
      const calls = r.output.filter((o) => o.type === 'function_call');
      if (!calls.length) return r;
      input.push(...r.output, ...calls.map((c) => ({ type: 'function_call_output', call_id: c.call_id, output: JSON.stringify(weather()) })));
    }
  }
  const tools = sc.script === 'tools' ? [{ type: 'function', function: { name: 'get_weather', parameters: PARAMETERS } }] : undefined;
  const messages = [{ role: 'user', content: PROMPT }];
  for (;;) {
    const r = await client.chat.completions.create({ model: sc.model, messages, tools, ...(sc.tenant ? { user: USER } : {}), ...(sc.stream ? { stream: true, ...(sc.usage ? { stream_options: { include_usage: true } } : {}) } : {}) }, options);
    if (sc.stream) return drain(r);
    const { message } = r.choices[0];
    if (!message.tool_calls) return r;
    messages.push(message, ...message.tool_calls.map((c) => ({ role: 'tool', tool_call_id: c.id, content: JSON.stringify(weather()) })));
  }
}

export async function anthropic(client) {
  const tools = sc.script === 'tools' ? [{ name: 'get_weather', input_schema: PARAMETERS }] : undefined;
  const messages = [{ role: 'user', content: PROMPT }];
  const signal = sc.abort ? new AbortController() : undefined;
  for (;;) {
    const body = { model: sc.model, max_tokens: 1024, messages, tools, ...(sc.tenant ? { metadata: { user_id: USER } } : {}), ...(sc.stream ? { stream: true } : {}) };
    const r = await client.messages.create(body, signal ? { signal: signal.signal } : undefined);
    if (sc.stream) {
      for await (const event of r) if (sc.abort && event.type === 'content_block_delta') { setTimeout(() => signal.abort(), 60); await new Promise((ok) => setTimeout(ok, 120)); break; }
      return;
    }
    if (r.stop_reason !== 'tool_use') return r;
    messages.push({ role: 'assistant', content: r.content }, { role: 'user', content: r.content.filter((c) => c.type === 'tool_use').map((c) => ({ type: 'tool_result', tool_use_id: c.id, content: JSON.stringify(weather()) })) });
  }
}
