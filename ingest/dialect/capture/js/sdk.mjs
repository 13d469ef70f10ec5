// A provider SDK under one instrumentation, called from a web handler. INSTRUMENTATION names it.

import { context } from '@opentelemetry/api';
import { anthropic, finish, openai, request, require, sc, SESSION, start, TENANT, USER } from './lib.mjs';

const instrumentations = {
  openinference() {
    const { OpenAIInstrumentation } = require('@arizeai/openinference-instrumentation-openai');
    const { AnthropicInstrumentation } = require('@arizeai/openinference-instrumentation-anthropic');
    return [new OpenAIInstrumentation(), new AnthropicInstrumentation()];
  },
  traceloop() {
    const { OpenAIInstrumentation } = require('@traceloop/instrumentation-openai');
    const { AnthropicInstrumentation } = require('@traceloop/instrumentation-anthropic');
    return [new OpenAIInstrumentation(), new AnthropicInstrumentation()];
  },
  contrib() {
    const { OpenAIInstrumentation } = require('@opentelemetry/instrumentation-openai');
    const { UndiciInstrumentation } = require('@opentelemetry/instrumentation-undici');
    return [new OpenAIInstrumentation(), undici(UndiciInstrumentation)];
  },
  // The Anthropic SDK traces by itself from version 1 on.
  native() {
    const { UndiciInstrumentation } = require('@opentelemetry/instrumentation-undici');
    return process.env.UNDICI ? [undici(UndiciInstrumentation)] : [];
  },
};

// The exporter's own requests must not become spans; those of the SDK show each attempt.
function undici(UndiciInstrumentation) {
  return new UndiciInstrumentation({
    ignoreRequestHook: (r) => r.path.includes('/v1/traces'),
    headersToSpanAttributes: { requestHeaders: ['x-stainless-retry-count'] },
  });
}

const which = process.env.INSTRUMENTATION;
const tracerProvider = start({ instrumentations: instrumentations[which]() });

// attributed says whose request it is, by the means of the instrumentation or else on the app's own span.
async function attributed(span, f) {
  if (!sc.tenant) return f();
  if (which === 'openinference') {
    const { setMetadata, setSession, setUser } = require('@arizeai/openinference-core');
    return context.with(setMetadata(setUser(setSession(context.active(), { sessionId: SESSION }), { userId: USER }), { tenant: TENANT }), f);
  }
  span.setAttributes({ 'user.id': USER, 'session.id': SESSION, 'tenant.id': TENANT });
  return f();
}

const sdk = sc.api === 'anthropic' ? (which === 'native' ? 'anthropic-native' : '@anthropic-ai/sdk') : 'openai';
const Client = require(sdk).default ?? require(sdk);
const client = new Client({ baseURL: sc.base });
await request((span) => attributed(span, () => (sc.api === 'anthropic' ? anthropic : openai)(client)));
await finish(tracerProvider);
