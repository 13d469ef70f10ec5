// Agent frameworks for Node, each with the export its own guide sets up: FRAMEWORK says which.

import { finish, openai, PROMPT, request, require, sc, SESSION, start, TENANT, tolerate, USER, weather } from './lib.mjs';
import { z } from 'zod';

const otlp = process.env.OTEL_EXPORTER_OTLP_ENDPOINT;
const tools = sc.script === 'tools';
const description = 'canary description';
let done; // exports what is left
const input = z.object({ city: z.string() });

const FRAMEWORKS = {
  async langchain() {
    const { LangChainInstrumentation } = require('@arizeai/openinference-instrumentation-langchain');
    const tracerProvider = start();
    const instrumentation = new LangChainInstrumentation({ tracerProvider });
    instrumentation.manuallyInstrument(await import('@langchain/core/callbacks/manager'));
    const { createAgent, tool } = await import('langchain');
    const { ChatOpenAI } = await import('@langchain/openai');
    const { ChatAnthropic } = await import('@langchain/anthropic');
    const model = sc.api === 'anthropic' ? new ChatAnthropic({ model: sc.model, anthropicApiUrl: sc.base, maxTokens: 1024 })
      : new ChatOpenAI({ model: sc.model, maxRetries: 2, configuration: { baseURL: sc.base }, useResponsesApi: sc.api === 'responses' });
    done = () => finish(tracerProvider);
    const agent = createAgent({ model, tools: tools ? [tool(async () => JSON.stringify(weather()), { name: 'get_weather', description, schema: input })] : [] });
    await agent.invoke({ messages: [{ role: 'user', content: PROMPT }] }, sc.tenant ? { metadata: { user_id: USER, session_id: SESSION, tenant: TENANT } } : {});
  },

  async mastra() {
    const { Mastra } = await import('@mastra/core/mastra');
    const { Agent } = await import('@mastra/core/agent');
    const { createTool } = await import('@mastra/core/tools');
    const { Observability } = await import('@mastra/observability');
    const { OtelExporter } = await import('@mastra/otel-exporter');
    const { createOpenAI } = await import('ai6-openai');
    const { createAnthropic } = await import('ai6-anthropic');
    const { createGoogleGenerativeAI } = await import('ai6-google');
    const model = { chat: () => createOpenAI({ baseURL: sc.base }).chat(sc.model), responses: () => createOpenAI({ baseURL: sc.base }).responses(sc.model),
      anthropic: () => createAnthropic({ baseURL: `${sc.base}/v1` })(sc.model), gemini: () => createGoogleGenerativeAI({ baseURL: sc.base })(sc.model) }[sc.api]();
    const get_weather = createTool({ id: 'get_weather', description, inputSchema: input, execute: async () => weather() });
    const agent = new Agent({ id: 'helper', name: 'helper', instructions: 'canary instructions', model, tools: tools ? { get_weather } : {} });
    const observability = new Observability({ configs: { otel: { serviceName: 'capture', exporters: [new OtelExporter({ provider: { custom: { endpoint: `${otlp}/v1/traces`, protocol: 'http/protobuf' } } })] } } });
    done = () => observability.shutdown();
    const mastra = new Mastra({ agents: { helper: agent }, observability, logger: false });
    const options = sc.tenant ? { tracingOptions: { metadata: { userId: USER, sessionId: SESSION, tenantId: TENANT } } } : {};
    if (sc.stream) for await (const _ of (await mastra.getAgent('helper').stream(PROMPT, options)).textStream);
    else await mastra.getAgent('helper').generate(PROMPT, options);
  },

  async openlit() {
    const Openlit = require('openlit').default;
    Openlit.init({ applicationName: 'capture', environment: 'test', otlpEndpoint: otlp, disableBatch: true, captureMessageContent: false, pricingJson: '{}' });
    done = () => new Promise((r) => setTimeout(r, 1500));
    const Client = sc.api === 'anthropic' ? require('@anthropic-ai/sdk').default : require('openai').default;
    const lib = await import('./lib.mjs');
    await request(() => (sc.api === 'anthropic' ? lib.anthropic : openai)(new Client({ baseURL: sc.base })));
  },

  async genkit() {
    const tracerProvider = start();
    const { genkit } = await import('genkit');
    const { disableGenkitOTelInitialization } = await import('genkit/tracing');
    disableGenkitOTelInitialization();
    const { openAI } = await import('@genkit-ai/compat-oai/openai');
    const ai = genkit({ plugins: [openAI({ apiKey: 'none', baseURL: sc.base })] });
    done = () => finish(tracerProvider);
    const get_weather = ai.defineTool({ name: 'get_weather', description, inputSchema: input }, async () => weather());
    await ai.defineFlow('answer', async () => {
      const o = { model: openAI.model(sc.model), prompt: PROMPT, ...(tools ? { tools: [get_weather] } : {}) };
      if (sc.stream) { const { stream, response } = ai.generateStream(o); for await (const _ of stream); await response; } else await ai.generate(o);
    })();
  },
};

try {
  await FRAMEWORKS[process.env.FRAMEWORK]();
} catch (err) {
  tolerate(err);
}
await done?.();
process.exit(0);
