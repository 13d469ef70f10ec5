// A scripted provider: it answers OpenAI, Anthropic and Gemini requests from a table and keeps the bill.
//
// The first path segment names the script, the second the provider:
//
//	POST /cached/openai/v1/chat/completions
//	POST /plain/anthropic/v1/messages
//	POST /reasoning/gemini/v1beta/models/gemini-2.5-pro:generateContent
//
// GET /bill returns what was billed and every HTTP answer in order; POST /reset forgets both.
// The counts in a bill are disjoint: input is the uncached part, output contains reasoning.
// An OpenAI cache write has no lifetime and is billed as cache_write_5m.
//
// Every text the provider makes up contains the word "canary", so that a text which survives
// strip.mjs is noticed.

import http from 'node:http';
import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';

const T = (input, cache_read, cache_write_5m, cache_write_1h, output, reasoning) =>
  ({ input, cache_read, cache_write_5m, cache_write_1h, output, reasoning });

const PLAIN = T(412, 0, 0, 0, 96, 0);

// What one answer bills, by script and provider. The numbers are chosen so that a wrong basis shows:
// "cached" reads more than it sends fresh, "smallcache" reads less, so only the emitter tells.
const USAGE = {
  cached: { openai: T(1760, 10240, 0, 0, 83, 0), anthropic: T(13, 9000, 1089, 1000, 83, 0), gemini: T(488, 512, 0, 0, 96, 0) },
  smallcache: { openai: T(2113, 512, 0, 0, 83, 0), anthropic: T(2113, 512, 128, 0, 83, 0), gemini: T(2113, 512, 0, 0, 83, 0) },
  cachewrite: { openai: T(1000, 512, 2048, 0, 83, 0), anthropic: T(1000, 0, 0, 2048, 83, 0), gemini: PLAIN },
  reasoning: { openai: T(1760, 10240, 0, 0, 900, 640), anthropic: T(412, 0, 0, 0, 900, 640), gemini: T(508, 512, 0, 0, 900, 640) },
  toolcall: { openai: T(523, 0, 0, 0, 41, 0), anthropic: T(23, 0, 1500, 0, 41, 0), gemini: T(523, 0, 0, 0, 41, 0) },
  toolfinal: { openai: T(99, 512, 0, 0, 57, 0), anthropic: T(111, 1500, 0, 0, 57, 0), gemini: T(611, 0, 0, 0, 57, 0) },
};
const GEMINI_TOOL_USE = 20; // Part of the input of gemini "reasoning", reported beside promptTokenCount.

// How often a script fails before it answers.
const FAILURES = {
  'retry-429': { status: 429, times: 1 },
  'retry-500': { status: 500, times: 2 },
  'always-429': { status: 429, times: Infinity },
};

const DATED = {
  'gpt-5': 'gpt-5-2025-08-07',
  'gpt-4o': 'gpt-4o-2024-08-06',
  'claude-sonnet-4-5': 'claude-sonnet-4-5-20250929',
};

const WORDS = ['canary', ' answer', ' from', ' the', ' script', '.'];
const id = (prefix, bytes = 12) => prefix + randomBytes(bytes).toString('hex');
const now = () => Math.floor(Date.now() / 1000);

export function startProvider(port = 0) {
  let billed = [], answers = [], attempts = new Map();

  const server = http.createServer(async (req, res) => {
    const path = new URL(req.url, 'http://x').pathname;
    let text = '';
    for await (const part of req) text += part;
    if (path === '/bill') return json(res, 200, { billed, answers });
    if (path === '/reset') { billed = []; answers = []; attempts = new Map(); return json(res, 200, {}); }

    const m = path.match(/^\/([^/]+)\/(openai|anthropic|gemini)\/(.*)$/);
    const api = m && apiOf(m[2], m[3]);
    if (!api) return json(res, 404, { error: { message: 'no such route', type: 'not_found_error' } });
    const [, script, provider, rest] = m;
    let body;
    try { body = JSON.parse(text); } catch { return json(res, 400, { error: { message: 'bad JSON' } }); }
    const model = provider === 'gemini' ? rest.match(/models\/([^:]+)/)[1] : body.model;

    const failure = FAILURES[script];
    const key = script + api;
    const n = attempts.get(key) ?? 0;
    attempts.set(key, n + 1);
    if (failure && n < failure.times) {
      answers.push({ api, model, status: failure.status });
      return fail(res, provider, failure.status);
    }

    const call = {
      api, provider, script, body, res,
      model: DATED[model] ?? model,
      stream: body.stream === true || rest.includes(':streamGenerateContent'),
      tool: script === 'tools' && !hasToolResult(api, body) ? toolName(api, body) : null,
      tokens: usageOf(script, provider, api, body),
      text: WORDS,
    };
    call.id = { chat: id('chatcmpl-'), responses: id('resp_'), embeddings: id('emb_'), messages: id('msg_01'), generate: id('') }[api];
    let done = false;
    call.bill = (tokens = call.tokens) => {
      if (done) return;
      done = true;
      const as = { openai: 'openai', anthropic: 'anthropic', gemini: 'google' }[provider];
      billed.push({ id: call.id, api, provider: as, model: call.model, status: 200, stream: call.stream, tokens });
      answers.push({ api, model, status: 200 });
    };
    await APIS[api](call);
  });
  return new Promise((ok) => server.listen(port, '127.0.0.1', () => ok(server)));
}

function apiOf(provider, rest) {
  if (provider === 'gemini') return /:(streamG|g)enerateContent/.test(rest) ? 'generate' : null;
  if (rest.endsWith('/chat/completions')) return 'chat';
  if (rest.endsWith('/responses')) return 'responses';
  if (rest.endsWith('/embeddings')) return 'embeddings';
  return rest.endsWith('/messages') ? 'messages' : null;
}

function usageOf(script, provider, api, body) {
  if (api === 'embeddings') return T(37, 0, 0, 0, 0, 0);
  if (script !== 'tools') return USAGE[script]?.[provider] ?? PLAIN;
  return USAGE[hasToolResult(api, body) ? 'toolfinal' : 'toolcall'][provider];
}

function hasToolResult(api, body) {
  const some = (list, f) => Array.isArray(list) && list.some(f);
  switch (api) {
    case 'chat': return some(body.messages, (m) => m.role === 'tool');
    case 'responses': return some(body.input, (m) => m.type === 'function_call_output');
    case 'messages': return some(body.messages, (m) => some(m.content, (c) => c.type === 'tool_result'));
    case 'generate': return some(body.contents, (m) => some(m.parts, (p) => p.functionResponse));
  }
  return false;
}

function toolName(api, body) {
  const tools = (body.tools ?? []).flatMap((t) => t.functionDeclarations ?? t.function_declarations ?? [t.function ?? t]);
  const names = tools.map((t) => t.name).filter(Boolean);
  return names.find((n) => n in ARGUMENTS) ?? names[0] ?? null;
}

function json(res, status, value, headers = {}) {
  res.writeHead(status, { 'content-type': 'application/json', 'x-request-id': id('req_'), 'request-id': id('req_'), ...headers });
  res.end(JSON.stringify(value));
}

function fail(res, provider, status) {
  const message = status === 429 ? 'Rate limit reached.' : 'The server had an error.';
  const headers = { 'retry-after': '0', 'retry-after-ms': '5' };
  const type = { openai: { 429: 'rate_limit_exceeded', 500: 'server_error' }, anthropic: { 429: 'rate_limit_error', 500: 'api_error' }, gemini: { 429: 'RESOURCE_EXHAUSTED', 500: 'INTERNAL' } }[provider][status];
  if (provider === 'anthropic') return json(res, status, { type: 'error', error: { type, message } }, headers);
  if (provider === 'gemini') return json(res, status, { error: { code: status, message, status: type } }, headers);
  json(res, status, { error: { message, type, code: type, param: null } }, headers);
}

// sse writes server-sent events. It stops in the middle of the text for script "abort" (the socket is
// destroyed) and when the client goes away; both bill four output tokens for each piece that was sent.
function sse(call) {
  const { res } = call;
  res.writeHead(200, { 'content-type': 'text/event-stream', 'x-request-id': id('req_'), 'request-id': id('req_') });
  let sent = 0, gone = false;
  const partial = () => call.bill({ ...call.tokens, output: 4 * sent, reasoning: 0 });
  res.on('close', () => { if (!res.writableFinished) { gone = true; partial(); } });
  return {
    send(data, event) {
      if (!gone) res.write((event ? `event: ${event}\n` : '') + `data: ${typeof data === 'string' ? data : JSON.stringify(data)}\n\n`);
    },
    // pieces calls f for each piece of text; it returns false when the stream has ended early.
    async pieces(f) {
      const list = call.script === 'slow' ? Array(40).fill(WORDS[0]) : call.text;
      for (const [i, piece] of list.entries()) {
        if (call.script === 'abort' && i === 4) {
          await sleep(30); // Let the client read what was written.
          partial();
          res.destroy();
          return false;
        }
        f(piece);
        sent++;
        await sleep(call.script === 'slow' ? 25 : 2);
        if (gone) return false;
      }
      return true;
    },
    end() { call.bill(); if (!gone) res.end(); },
  };
}

// What the script passes to a tool: the apps' own, and one that reads a file for each agent command line.
const ARGUMENTS = { get_weather: { city: 'canary town' }, read_file: { file_path: 'canary.txt' }, Read: { file_path: 'canary.txt' }, exec_command: { cmd: 'cat canary.txt' } };
const argumentsOf = (tool) => ARGUMENTS[tool] ?? ARGUMENTS.get_weather;

const openaiUsage = (t) => ({
  prompt_tokens: t.input + t.cache_read + t.cache_write_5m,
  completion_tokens: t.output,
  total_tokens: t.input + t.cache_read + t.cache_write_5m + t.output,
  prompt_tokens_details: { cached_tokens: t.cache_read, audio_tokens: 0, ...(t.cache_write_5m ? { cache_write_tokens: t.cache_write_5m } : {}) },
  completion_tokens_details: { reasoning_tokens: t.reasoning, audio_tokens: 0, accepted_prediction_tokens: 0, rejected_prediction_tokens: 0 },
});

const responsesUsage = (t) => ({
  input_tokens: t.input + t.cache_read + t.cache_write_5m,
  input_tokens_details: { cached_tokens: t.cache_read, cache_write_tokens: t.cache_write_5m },
  output_tokens: t.output,
  output_tokens_details: { reasoning_tokens: t.reasoning },
  total_tokens: t.input + t.cache_read + t.cache_write_5m + t.output,
});

const anthropicUsage = (t) => ({
  input_tokens: t.input,
  cache_creation_input_tokens: t.cache_write_5m + t.cache_write_1h,
  cache_read_input_tokens: t.cache_read,
  cache_creation: { ephemeral_5m_input_tokens: t.cache_write_5m, ephemeral_1h_input_tokens: t.cache_write_1h },
  output_tokens: t.output,
  ...(t.reasoning ? { output_tokens_details: { thinking_tokens: t.reasoning } } : {}),
  service_tier: 'standard',
});

function geminiUsage(t, script) {
  const toolUse = script === 'reasoning' ? GEMINI_TOOL_USE : 0;
  return {
    promptTokenCount: t.input + t.cache_read - toolUse,
    candidatesTokenCount: t.output - t.reasoning,
    totalTokenCount: t.input + t.cache_read + t.output,
    ...(t.cache_read ? { cachedContentTokenCount: t.cache_read } : {}),
    ...(t.reasoning ? { thoughtsTokenCount: t.reasoning } : {}),
    ...(toolUse ? { toolUsePromptTokenCount: toolUse } : {}),
    promptTokensDetails: [{ modality: 'TEXT', tokenCount: t.input + t.cache_read - toolUse }],
    trafficType: 'ON_DEMAND',
  };
}

const APIS = {
  async chat(call) {
    const { body, model, tool, tokens } = call;
    const head = { id: call.id, created: now(), model, service_tier: 'default', system_fingerprint: 'fp_0' };
    const toolCall = { id: id('call_'), type: 'function', function: { name: tool, arguments: JSON.stringify(argumentsOf(tool)) } };
    if (!call.stream) {
      call.bill();
      const message = tool ? { role: 'assistant', content: null, refusal: null, tool_calls: [toolCall] } : { role: 'assistant', content: call.text.join(''), refusal: null };
      return json(call.res, 200, { ...head, object: 'chat.completion', choices: [{ index: 0, message, logprobs: null, finish_reason: tool ? 'tool_calls' : 'stop' }], usage: openaiUsage(tokens) });
    }
    const s = sse(call);
    const withUsage = body.stream_options?.include_usage === true && call.script !== 'no-usage';
    const chunk = (delta, finish_reason = null) => s.send({ ...head, object: 'chat.completion.chunk', choices: [{ index: 0, delta, logprobs: null, finish_reason }], ...(withUsage ? { usage: null } : {}) });
    chunk({ role: 'assistant', content: tool ? null : '' });
    if (tool) chunk({ tool_calls: [{ index: 0, ...toolCall }] });
    else if (!(await s.pieces((content) => chunk({ content })))) return;
    chunk({}, tool ? 'tool_calls' : 'stop');
    if (withUsage) s.send({ ...head, object: 'chat.completion.chunk', choices: [], usage: openaiUsage(tokens) });
    s.send('[DONE]');
    s.end();
  },

  async responses(call) {
    const { model, tool, tokens, body } = call;
    const items = [];
    if (tokens.reasoning) items.push({ type: 'reasoning', id: id('rs_'), summary: [] });
    if (tool) items.push({ type: 'function_call', id: id('fc_'), call_id: id('call_'), name: tool, arguments: JSON.stringify(argumentsOf(tool)), status: 'completed' });
    else items.push({ type: 'message', id: id('msg_'), role: 'assistant', status: 'completed', content: [{ type: 'output_text', text: call.text.join(''), annotations: [], logprobs: [] }] });
    const response = (status, output, usage) => ({
      id: call.id, object: 'response', created_at: now(), status, error: null, incomplete_details: null, instructions: null, max_output_tokens: null, model,
      output, parallel_tool_calls: true, previous_response_id: null, reasoning: { effort: null, summary: null }, service_tier: 'default', store: false, temperature: 1,
      text: { format: { type: 'text' } }, tool_choice: 'auto', tools: body.tools ?? [], top_p: 1, truncation: 'disabled', usage, metadata: {},
    });
    if (!call.stream) {
      call.bill();
      return json(call.res, 200, response('completed', items, responsesUsage(tokens)));
    }
    const s = sse(call);
    let n = 0;
    const event = (type, data) => s.send({ type, sequence_number: n++, ...data }, type);
    event('response.created', { response: response('in_progress', [], null) });
    for (const [output_index, item] of items.entries()) {
      if (item.type !== 'message') {
        event('response.output_item.added', { output_index, item: item.type === 'function_call' ? { ...item, arguments: '', status: 'in_progress' } : item });
        if (item.type === 'function_call') {
          event('response.function_call_arguments.delta', { item_id: item.id, output_index, delta: JSON.stringify(argumentsOf(tool)) });
          event('response.function_call_arguments.done', { item_id: item.id, output_index, arguments: JSON.stringify(argumentsOf(tool)) });
        }
        event('response.output_item.done', { output_index, item });
        continue;
      }
      const at = { item_id: item.id, output_index, content_index: 0 };
      event('response.output_item.added', { output_index, item: { ...item, status: 'in_progress', content: [] } });
      event('response.content_part.added', { ...at, part: { ...item.content[0], text: '' } });
      if (!(await s.pieces((delta) => event('response.output_text.delta', { ...at, delta, logprobs: [] })))) return;
      event('response.output_text.done', { ...at, text: item.content[0].text, logprobs: [] });
      event('response.content_part.done', { ...at, part: item.content[0] });
      event('response.output_item.done', { output_index, item });
    }
    event('response.completed', { response: response('completed', items, responsesUsage(tokens)) });
    s.end();
  },

  async embeddings(call) {
    const input = Array.isArray(call.body.input) && typeof call.body.input[0] !== 'number' ? call.body.input : [call.body.input];
    const vector = [0.25, 0.5];
    const embedding = call.body.encoding_format === 'base64' ? Buffer.from(Float32Array.from(vector).buffer).toString('base64') : vector;
    call.bill();
    json(call.res, 200, { object: 'list', model: call.model, data: input.map((_, index) => ({ object: 'embedding', index, embedding })), usage: { prompt_tokens: call.tokens.input, total_tokens: call.tokens.input } });
  },

  async messages(call) {
    const { model, tool, tokens } = call;
    const usage = anthropicUsage(tokens);
    const blocks = [];
    if (tokens.reasoning) blocks.push({ type: 'thinking', thinking: 'canary thought', signature: 'c2ln' });
    blocks.push(tool ? { type: 'tool_use', id: id('toolu_01'), name: tool, input: argumentsOf(tool) } : { type: 'text', text: call.text.join('') });
    const message = { id: call.id, type: 'message', role: 'assistant', model, content: blocks, stop_reason: tool ? 'tool_use' : 'end_turn', stop_sequence: null, usage };
    if (!call.stream) {
      call.bill();
      return json(call.res, 200, message);
    }
    const s = sse(call);
    const event = (type, data) => s.send({ type, ...data }, type);
    const { output_tokens_details, ...start } = usage;
    event('message_start', { message: { ...message, content: [], stop_reason: null, usage: { ...start, output_tokens: 1 } } });
    event('ping', {});
    for (const [index, block] of blocks.entries()) {
      if (block.type === 'thinking') {
        event('content_block_start', { index, content_block: { type: 'thinking', thinking: '', signature: '' } });
        event('content_block_delta', { index, delta: { type: 'thinking_delta', thinking: block.thinking } });
        event('content_block_delta', { index, delta: { type: 'signature_delta', signature: block.signature } });
      } else if (block.type === 'tool_use') {
        event('content_block_start', { index, content_block: { ...block, input: {} } });
        event('content_block_delta', { index, delta: { type: 'input_json_delta', partial_json: JSON.stringify(argumentsOf(tool)) } });
      } else {
        event('content_block_start', { index, content_block: { type: 'text', text: '' } });
        if (!(await s.pieces((text) => event('content_block_delta', { index, delta: { type: 'text_delta', text } })))) return;
      }
      event('content_block_stop', { index });
    }
    const { cache_creation, service_tier, ...cumulative } = usage;
    event('message_delta', { delta: { stop_reason: message.stop_reason, stop_sequence: null }, usage: cumulative });
    event('message_stop', {});
    s.end();
  },

  async generate(call) {
    const { model, tool, tokens } = call;
    const usageMetadata = geminiUsage(tokens, call.script);
    const answer = (parts, finishReason, usage) => ({ candidates: [{ content: { role: 'model', parts }, index: 0, ...(finishReason ? { finishReason } : {}) }], ...(usage ? { usageMetadata: usage } : {}), modelVersion: model, responseId: call.id });
    const parts = tool ? [{ functionCall: { name: tool, args: argumentsOf(tool) } }] : [{ text: call.text.join('') }];
    if (!call.stream) {
      call.bill();
      return json(call.res, 200, answer(parts, 'STOP', usageMetadata));
    }
    const s = sse(call);
    if (tool) s.send(answer(parts, 'STOP', usageMetadata));
    else {
      if (!(await s.pieces((text) => s.send(answer([{ text }]))))) return;
      s.send(answer([{ text: '' }], 'STOP', usageMetadata));
    }
    s.end();
  },
};
