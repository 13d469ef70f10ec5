// An OTLP/HTTP receiver that keeps each ExportTraceServiceRequest and ExportLogsServiceRequest as OTLP JSON, in
// the order of arrival. JSON bodies are kept as sent; protobuf bodies are decoded by the field numbers of
// opentelemetry/proto/trace/v1 and logs/v1. Metrics are accepted and dropped: no call is read from them.

import http from 'node:http';
import { gunzipSync } from 'node:zlib';

export function startRecorder(port = 0) {
  let requests = [];
  const server = http.createServer(async (req, res) => {
    const parts = [];
    for await (const part of req) parts.push(part);
    let body = Buffer.concat(parts);
    const type = req.headers['content-type'] ?? '';
    try {
      if (req.headers['content-encoding'] === 'gzip') body = gunzipSync(body);
      const signal = req.url.match(/\/v1\/(traces|logs)/)?.[1];
      if (signal) requests.push(type.includes('json') ? JSON.parse(body) : { traces: decodeTraces, logs: decodeLogs }[signal](body));
    } catch (err) {
      console.error('recorder:', err.message);
      res.writeHead(400);
      return res.end();
    }
    res.writeHead(200, { 'content-type': type.includes('json') ? 'application/json' : 'application/x-protobuf' });
    res.end(type.includes('json') ? '{}' : '');
  });
  return new Promise((ok) => server.listen(port, '127.0.0.1', () => ok({
    port: server.address().port,
    take() { const r = requests; requests = []; return r; },
    close: () => { server.close(); server.closeAllConnections(); },
  })));
}

// fields yields [number, wireType, value] of one protobuf message.
function* fields(buf) {
  let at = 0;
  const varint = () => {
    let v = 0n, shift = 0n;
    for (;;) {
      const b = buf[at++];
      v |= BigInt(b & 0x7f) << shift;
      if (b < 0x80) return v;
      shift += 7n;
    }
  };
  while (at < buf.length) {
    const tag = Number(varint());
    const wire = tag & 7;
    let value;
    if (wire === 0) value = varint();
    else if (wire === 1) { value = buf.subarray(at, at + 8); at += 8; }
    else if (wire === 5) { value = buf.subarray(at, at + 4); at += 4; }
    else if (wire === 2) { const n = Number(varint()); value = buf.subarray(at, at + n); at += n; }
    else throw new Error(`protobuf wire type ${wire}`);
    yield [tag >> 3, value];
  }
}

const str = (v) => v.toString('utf8');
const hex = (v) => v.toString('hex');
const num = (v) => Number(v);
const u64 = (v) => v.readBigUInt64LE().toString();
const u32 = (v) => v.readUInt32LE();
const int64 = (v) => BigInt.asIntN(64, v).toString();
const double = (v) => { const d = v.readDoubleLE(); return Number.isFinite(d) ? d : String(d); };

// message builds a decoder from {number: [name, decode, repeated]}.
const message = (spec) => (buf) => {
  const out = {};
  for (const [n, v] of fields(buf)) {
    const f = spec[n];
    if (!f) continue;
    const value = f[1](v);
    if (f[2]) (out[f[0]] ??= []).push(value);
    else out[f[0]] = value;
  }
  return out;
};

const anyValue = (buf) => decodeAny(buf);
const keyValue = message({ 1: ['key', str], 2: ['value', anyValue] });
const decodeAny = message({
  1: ['stringValue', str],
  2: ['boolValue', (v) => v !== 0n],
  3: ['intValue', int64],
  4: ['doubleValue', double],
  5: ['arrayValue', message({ 1: ['values', anyValue, true] })],
  6: ['kvlistValue', message({ 1: ['values', keyValue, true] })],
  7: ['bytesValue', (v) => v.toString('base64')],
});
const attributes = ['attributes', keyValue, true];
const span = message({
  1: ['traceId', hex], 2: ['spanId', hex], 3: ['traceState', str], 4: ['parentSpanId', hex], 16: ['flags', u32], 5: ['name', str], 6: ['kind', num],
  7: ['startTimeUnixNano', u64], 8: ['endTimeUnixNano', u64], 9: attributes, 10: ['droppedAttributesCount', num],
  11: ['events', message({ 1: ['timeUnixNano', u64], 2: ['name', str], 3: attributes, 4: ['droppedAttributesCount', num] }), true],
  12: ['droppedEventsCount', num],
  13: ['links', message({ 1: ['traceId', hex], 2: ['spanId', hex], 3: ['traceState', str], 4: attributes, 5: ['droppedAttributesCount', num], 6: ['flags', u32] }), true],
  14: ['droppedLinksCount', num],
  15: ['status', message({ 2: ['message', str], 3: ['code', num] })],
});
const logRecord = message({
  1: ['timeUnixNano', u64], 11: ['observedTimeUnixNano', u64], 2: ['severityNumber', num], 3: ['severityText', str], 5: ['body', anyValue],
  6: attributes, 7: ['droppedAttributesCount', num], 8: ['flags', u32], 9: ['traceId', hex], 10: ['spanId', hex], 12: ['eventName', str],
});
const request = (resources, scopes, records, record) => message({
  1: [resources, message({
    1: ['resource', message({ 1: attributes, 2: ['droppedAttributesCount', num] })],
    2: [scopes, message({
      1: ['scope', message({ 1: ['name', str], 2: ['version', str], 3: attributes, 4: ['droppedAttributesCount', num] })],
      2: [records, record, true], 3: ['schemaUrl', str],
    }), true],
    3: ['schemaUrl', str],
  }), true],
});
export const decodeTraces = request('resourceSpans', 'scopeSpans', 'spans', span);
export const decodeLogs = request('resourceLogs', 'scopeLogs', 'logRecords', logRecord);
