// Langfuse: its span processor (OTLP/protobuf to its own path) and its wrapper of the OpenAI client.

import { LangfuseSpanProcessor } from '@langfuse/otel';
import { observeOpenAI } from '@langfuse/openai';
import { propagateAttributes, startActiveObservation } from '@langfuse/tracing';
import { finish, openai, require, sc, SESSION, start, TENANT, tolerate, USER, weather } from './lib.mjs';

const baseUrl = process.env.OTEL_EXPORTER_OTLP_ENDPOINT;
const tracerProvider = start({ processors: [new LangfuseSpanProcessor({ publicKey: 'pk-lf-none', secretKey: 'sk-lf-none', baseUrl })] });
const OpenAI = require('openai');
const client = observeOpenAI(new OpenAI({ baseURL: sc.base }));

const run = () => startActiveObservation('answer-question', async () => {
  await openai(client);
  if (sc.script === 'tools') await startActiveObservation('get_weather', async (tool) => tool.update({ output: weather() }), { asType: 'tool' });
}, { asType: 'agent' });

try {
  await (sc.tenant ? propagateAttributes({ userId: USER, sessionId: SESSION, traceName: 'answer', tags: ['support'], metadata: { tenant: TENANT } }, run) : run());
} catch (err) {
  tolerate(err);
}
await finish(tracerProvider);
