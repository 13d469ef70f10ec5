// strip drops content from recorded OTLP JSON before anything is kept: texts of messages, tool arguments and
// results, request headers, process and host attributes, local paths and stack traces. Names, ids, models,
// numbers and usage objects stay, also inside JSON texts. The same input always gives the same output.

const DOTS = '…';

// Attributes that are dropped with their key.
const DROPPED = [
  /^(process|host|os)\./, /stack_?trace$/, /^code\.(file|stacktrace|function)/, /^code\.(filepath|lineno|namespace)$/, /^logfire\.json_schema$/,
  /^thread\./, /^(os_|host\.|terminal\.|installation\.)/, /(^|[._])(email|workspace|cwd|hostname)$/, /(^|\.)(authorization|api[-_]?key)$/i,
];
const HEADER = /(^|\.)(request|response)\.headers?\.(.+)$/;
const KEPT_HEADERS = new Set(['x-stainless-retry-count', 'user-agent']);

// Attributes that hold messages: inside them only the members named in KEPT_MEMBERS keep their texts.
const CONTENT = [
  /^(input|output)\.value$/, /^gen_ai\.(prompt|completion)(\.|$)/, /^gen_ai\.(input|output|prompt|completion|system)[._](messages?|instructions|content)/, /^gen_ai\.system_instructions$/, /^gen_ai\.tool\.(call\.)?(arguments|result|description)/,
  /^gen_ai\.tool\.definitions$/, /^(gen_ai|llm)\.(request|response)\.(functions|tools)/, /(?<!^(exception|error)\.|status_)messages?(\.\d+\..*)?$/, /^ai\.(prompt|response\.(text|object|toolCalls|reasoning|files|msg|content)|toolCall\.(args|result)|values?|embeddings?|request\.body|response\.body)/,
  /^gcp\.vertex\.agent\.(tool_call_args|tool_response|llm_request|llm_response|data)$/, /(^|[._])(goal|backstory|expected_output)$/, /^(crewai\.)?(crew|agent|task)\.(description|result|agents|tasks|output|context)$/, /^traceloop\.entity\.(input|output)$/, /^langfuse\.(observation|trace)\.(input|output)$/, /^(all_messages|pydantic_ai\.all_messages|final_result|tool_arguments|tool_response|model_request_parameters|request_data|response_data|events)(_events)?$/,
  /^tool\.(parameters|description|json_schema)$/, /^llm\.(tools|prompts|choices)/, /^(embedding\.(text|vector|embeddings)|document\.)/, /^llm\.\w+\.(messages|input|choices|output|content|tools)$/, /^(system_prompt|content|message|text|tool_calls?|tool_result)$/,
  /^genkit:(input|output)$/, /^mastra\.\w+\.(input|output)$/,
  // Agent command lines.
  /^(prompt|request_text|response_text|function_args|tool_parameters|tool_input|arguments|output|reasoning|user_prompt|phases|new_context)$/,
];
const KEPT_MEMBERS = /^(id|.*_id|.*Id|model|model_name|model_id|role|type|kind|object|status|finish_?reason|stop_?reason|finishReason|stopReason|name|service_tier|system_fingerprint|provider|version|modality|traffic_?[tT]ype|model_?[vV]ersion|created.*)$/;

// Members of any JSON text whose texts are content.
const CONTENT_MEMBERS = /^(content|text|goal|backstory|expected_output|arguments|args|input|output|parts|thinking|reasoning_content|refusal|prompt|completion|messages|result|body|description|system|instructions|query|delta|signature|partial_json|parameters|schema|embedding|vector)$/;

const matches = (list, key) => list.some((re) => re.test(key));
const LOCAL_PATH = /(file:\/\/|(?<![\w/.]))\/(root|home|work|tmp|usr|var|opt|Users)\/[^\s"')]*/g;

function parse(s) {
  if (!/^\s*[[{]/.test(s)) return undefined;
  try { return JSON.parse(s); } catch { return undefined; }
}

// text strips one string; member is the nearest JSON member or attribute it belongs to.
function text(s, member, content, limit) {
  const inner = parse(s);
  if (inner !== undefined && content && !/"(\w*[uU]sage\w*|id|type|role|model)":/.test(s)) return DOTS;
  if (inner !== undefined) return JSON.stringify(walk(inner, member, content));
  if (/^\s*[[{]\s*['{]/.test(s) || /^\w+\(.*\)$/s.test(s)) return repr(s, content);
  if (content || s.length > limit) return s === '' ? s : DOTS;
  return s.replace(LOCAL_PATH, DOTS);
}

// walk strips a JSON value. Inside content every text goes unless its member names an identifier or a kind.
function walk(value, member, content) {
  if (typeof value === 'string') return text(value, member, content && !KEPT_MEMBERS.test(member), /^id$|_id$|Id$/.test(member) ? 64 : 40);
  if (Array.isArray(value)) {
    if (value.length > 8 && value.every((v) => typeof v === 'number')) return [];
    return value.map((v) => walk(v, member, content));
  }
  if (value === null || typeof value !== 'object') return value;
  const inArguments = /^(arguments|args|input|parameters|schema|result)$/.test(member) && !('usage' in value) && !('messages' in value) && !('model' in value) && !('role' in value);
  return Object.fromEntries(Object.entries(value).map(([k, v]) => {
    if (/headers$|^authorization$|^api_?key$/i.test(k)) return [k, v === null ? v : DOTS];
    if (inArguments && typeof v === 'string') return [k, DOTS];
    if (inArguments && typeof v === 'number') return [k, 0];
    return [k, walk(v, k, content || CONTENT_MEMBERS.test(k))];
  }));
}

// repr strips a printed Python or JavaScript object: quoted texts stay only where they are short names
// after a member that may keep its text, or keys.
function repr(s, content) {
  return s.replace(/(['"]?)([A-Za-z_][\w.-]*)\1(\s*[:=]\s*)('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")/g, (all, q, key, sep, quoted) => {
    const body = quoted.slice(1, -1);
    const keep = body.length <= 40 && (content ? KEPT_MEMBERS.test(key) : !CONTENT_MEMBERS.test(key));
    return `${q}${key}${q}${sep}${keep ? quoted : `'${DOTS}'`}`;
  }).replace(/('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")(?=\s*[,\])])/g, (quoted, _, at, all) => {
    const element = /[[,(]\s*$/.test(all.slice(0, at));
    return quoted.length > 42 || (content && element) ? `'${DOTS}'` : quoted;
  });
}

function anyValue(v, key, content) {
  if (key === 'gen_ai.tool.definitions' && v?.stringValue?.length > 4000) return { stringValue: DOTS };
  if (typeof v?.stringValue === 'string') {
    const long = /message$|^exception\.|status/.test(key) ? 200 : 120;
    // Indexed message attributes (llm.input_messages.0.message.role) keep roles, names and ids.
    const keep = KEPT_MEMBERS.test(key.split('.').at(-1)) && !/\.(value|arguments|content|text)$/.test(key);
    return { ...v, stringValue: text(v.stringValue, key.split('.').at(-1), content && !keep, long) };
  }
  if (v?.arrayValue && content && v.arrayValue.values?.some((x) => 'doubleValue' in x)) return { arrayValue: { values: [] } };
  if (v?.arrayValue) return { arrayValue: { values: (v.arrayValue.values ?? []).map((x) => anyValue(x, key, content)) } };
  if (v?.kvlistValue) return { kvlistValue: { values: (v.kvlistValue.values ?? []).map((kv) => ({ key: kv.key, value: anyValue(kv.value, kv.key, content || CONTENT_MEMBERS.test(kv.key)) })) } };
  if (v?.bytesValue) return { bytesValue: '' };
  return v;
}

function attributes(list) {
  return list?.filter(({ key }) => {
    const header = key.match(HEADER);
    return !matches(DROPPED, key) && (!header || KEPT_HEADERS.has(header[3].replaceAll('_', '-')));
  }).map(({ key, value }) => ({ key, value: anyValue(value, key, matches(CONTENT, key)) }));
}

function span(s) {
  const out = { ...s };
  if (s.attributes) out.attributes = attributes(s.attributes);
  if (s.events) out.events = s.events.map((e) => ({ ...e, attributes: attributes(e.attributes) }));
  if (s.links) out.links = s.links.map((l) => ({ ...l, attributes: attributes(l.attributes) }));
  if (s.status?.message) out.status = { ...s.status, message: text(s.status.message, 'status', false, 200) };
  return out;
}

function logRecord(r) {
  const out = { ...r };
  if (r.attributes) out.attributes = attributes(r.attributes);
  if (r.body) out.body = anyValue(r.body, 'body', false);
  return out;
}

const request = (resources, scopes, records, record) => (r) => ({
  [resources]: (r[resources] ?? []).map((x) => ({
    ...x,
    resource: { ...x.resource, attributes: attributes(x.resource?.attributes ?? []) },
    [scopes]: (x[scopes] ?? []).map((s) => ({ ...s, [records]: (s[records] ?? []).map(record) })),
  })),
});
const traces = request('resourceSpans', 'scopeSpans', 'spans', span);
const logs = request('resourceLogs', 'scopeLogs', 'logRecords', logRecord);

export const strip = (r) => (r.resourceLogs ? logs(r) : traces(r));
