// Vercel AI SDK: AISDK says which major version (5, 6 or 7).

import { finish, PROMPT, sc, SESSION, start, TENANT, tolerate, USER, weather } from './lib.mjs';
import { z } from 'zod';

const major = process.env.AISDK;
const { generateText, streamText, embedMany, generateObject, tool, stepCountIs, isStepCount, ...ai } = await import(`ai${major}`);
const { createOpenAI } = await import(`ai${major}-openai`);
const { createAnthropic } = await import(`ai${major}-anthropic`);
const { createGoogleGenerativeAI } = await import(`ai${major}-google`);

const tracerProvider = start();
if (major === '7') {
  const { OpenTelemetry } = await import('@ai-sdk/otel');
  ai.registerTelemetry(new OpenTelemetry(process.env.AISDK_FULL ? { usage: true, providerMetadata: true, runtimeContext: true } : {}));
}

const openai = createOpenAI({ baseURL: sc.base });
const model = {
  chat: () => openai.chat(sc.model),
  responses: () => openai.responses(sc.model),
  embeddings: () => (openai.textEmbeddingModel ?? openai.embedding)(sc.model),
  anthropic: () => createAnthropic({ baseURL: `${sc.base}/v1` })(sc.model),
  gemini: () => createGoogleGenerativeAI({ baseURL: sc.base })(sc.model),
}[sc.api]();

// Version 7 takes attribution as runtime context, 5 and 6 as telemetry metadata.
const telemetry = { isEnabled: true, functionId: 'answer-question', ...(sc.tenant && major !== '7' ? { metadata: { tenantId: TENANT, userId: USER, sessionId: SESSION } } : {}) };
const common = {
  model, prompt: PROMPT,
  ...(major === '7' ? { telemetry: { ...telemetry, ...(sc.tenant ? { includeRuntimeContext: { tenantId: true, userId: true, sessionId: true } } : {}) }, ...(sc.tenant ? { runtimeContext: { tenantId: TENANT, userId: USER, sessionId: SESSION } } : {}) } : { experimental_telemetry: telemetry }),
};
const tools = { get_weather: tool({ description: 'canary description', inputSchema: z.object({ city: z.string() }), execute: async () => weather() }) };
const looped = sc.script === 'tools' ? { tools, stopWhen: (isStepCount ?? stepCountIs)(4) } : {};

try {
  if (sc.api === 'embeddings') {
    const { prompt, ...rest } = common;
    await embedMany({ ...rest, values: [PROMPT] });
  } else if (sc.stream) {
    const abort = new AbortController();
    const result = streamText({ ...common, ...looped, ...(sc.abort ? { abortSignal: abort.signal } : {}), onError: ({ error }) => tolerate(error) });
    for await (const _ of result.textStream) if (sc.abort) setTimeout(() => abort.abort(), 60);
  } else {
    await generateText({ ...common, ...looped });
  }
} catch (err) {
  tolerate(err);
}
await finish(tracerProvider);
