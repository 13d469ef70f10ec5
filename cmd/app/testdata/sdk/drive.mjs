// Makes the calls that the test asks for, one a line of JSON on stdin, with the real
// SDKs and their default retries. Answers in lines on stdout: {"chunk": text} for each
// piece of a stream as it comes, then {"done": true, ...}.
import readline from 'node:readline';
import OpenAI from 'openai';
import Anthropic from '@anthropic-ai/sdk';
import { GoogleGenAI } from '@google/genai';

const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const say = (v) => process.stdout.write(JSON.stringify(v) + '\n');
const ask = 'Say "hello" in three words, with an é.';

// gather reads a stream to its end, or to its first text where the caller leaves then,
// which it does at the next line of stdin.
async function gather(call, stream, leave, pieces) {
  const out = { text: '' };
  for await (const event of stream) {
    const { text, model, usage } = pieces(event);
    if (model) out.model = model;
    if (usage) out.usage = { ...out.usage, ...usage };
    if (!text) continue;
    out.text += text;
    say({ chunk: text });
    if (call.cancel) {
      await lines.next();
      leave();
      break;
    }
  }
  return out;
}

const apis = {
  'openai.chat': async (call) => {
    const client = new OpenAI({ apiKey: 'k', baseURL: call.base + '/v1', defaultHeaders: call.headers });
    const body = { model: call.model, max_tokens: 50, messages: [{ role: 'user', content: ask }] };
    if (!call.stream) {
      const r = await client.chat.completions.create(body);
      return { text: r.choices[0].message.content, model: r.model, usage: r.usage };
    }
    const stream = await client.chat.completions.create({ ...body, stream: true, stream_options: { include_usage: true } });
    return gather(call, stream, () => stream.controller.abort(), (e) => ({ text: e.choices[0]?.delta?.content, model: e.model, usage: e.usage }));
  },
  'openai.responses': async (call) => {
    const client = new OpenAI({ apiKey: 'k', baseURL: call.base + '/v1', defaultHeaders: call.headers });
    const body = { model: call.model, max_output_tokens: 50, input: ask };
    if (!call.stream) {
      const r = await client.responses.create(body);
      return { text: r.output_text, model: r.model, usage: r.usage };
    }
    const stream = await client.responses.create({ ...body, stream: true });
    return gather(call, stream, () => stream.controller.abort(), (e) => ({
      text: e.type === 'response.output_text.delta' ? e.delta : '', model: e.response?.model, usage: e.response?.usage }));
  },
  'anthropic.messages': async (call) => {
    const client = new Anthropic({ apiKey: 'k', baseURL: call.base, defaultHeaders: call.headers });
    const body = { model: call.model, max_tokens: 50, messages: [{ role: 'user', content: ask }] };
    if (!call.stream) {
      const r = await client.messages.create(body);
      return { text: r.content[0].text, model: r.model, usage: r.usage };
    }
    const stream = await client.messages.create({ ...body, stream: true });
    return gather(call, stream, () => stream.controller.abort(), (e) => ({
      text: e.type === 'content_block_delta' ? e.delta.text : '', model: e.message?.model, usage: e.usage ?? e.message?.usage }));
  },
  'gemini.generate': async (call) => {
    const abort = new AbortController();
    const client = new GoogleGenAI({ apiKey: 'k', httpOptions: { baseUrl: call.base, headers: call.headers } });
    const body = { model: call.model, contents: ask, config: { maxOutputTokens: 50, abortSignal: abort.signal } };
    if (!call.stream) {
      const r = await client.models.generateContent(body);
      return { text: r.text, model: r.modelVersion, usage: r.usageMetadata };
    }
    const stream = await client.models.generateContentStream(body);
    return gather(call, stream, () => abort.abort(), (e) => ({ text: e.text, model: e.modelVersion, usage: e.usageMetadata }));
  },
};

for (let line; !(line = await lines.next()).done; ) {
  const call = JSON.parse(line.value);
  try {
    say({ done: true, ...(await apis[call.api](call)) });
  } catch (e) {
    say({ done: true, error: `${e.name}: ${e.message}`, status: e.status ?? 0 });
  }
}
