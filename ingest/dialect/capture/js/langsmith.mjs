// LangSmith in OpenTelemetry mode: its processor and exporter (OTLP/protobuf), its wrapper of the OpenAI client and a traceable function.

import { initializeOTEL } from 'langsmith/experimental/otel/setup';
import { traceable } from 'langsmith/traceable';
import { wrapOpenAI } from 'langsmith/wrappers';
import { openai, require, sc, SESSION, TENANT, tolerate, USER } from './lib.mjs';

const { DEFAULT_LANGSMITH_SPAN_PROCESSOR } = initializeOTEL();
const OpenAI = require('openai');
const client = wrapOpenAI(new OpenAI({ baseURL: sc.base }));
const metadata = sc.tenant ? { user_id: USER, session_id: SESSION, tenant: TENANT } : {};

try {
  await traceable(() => openai(client), { name: 'answer-question', run_type: 'chain', metadata })();
} catch (err) {
  tolerate(err);
}
await new Promise((r) => setTimeout(r, 300));
await DEFAULT_LANGSMITH_SPAN_PROCESSOR.forceFlush();
await DEFAULT_LANGSMITH_SPAN_PROCESSOR.shutdown();
