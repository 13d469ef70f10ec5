// Package otlp receives OpenTelemetry spans, logs and metrics: OTLP 1.11 over gRPC and HTTP, protobuf and JSON, and
// files that the collector or an SDK wrote.
//
// It authenticates before it reads a body, bounds what it reads and inflates, decodes, and hands pdata to a Consumer.
// It answers only after the Consumer said that the data is durable, and an answer always tells the sender the truth
// about a retry: 429 and 503 (RESOURCE_EXHAUSTED and UNAVAILABLE with RetryInfo) mean "send it again", everything else
// that is no success means "never again". It never answers 500.
//
// One bad span never costs its neighbours: a request that pdata refuses is split on the wire level, every span that
// decodes by itself is kept, and the others are named in the partial success. It refuses spans without ids, spans with
// malformed ids and spans nested beyond all reason. Strings leave it as valid UTF-8.
//
// It does not look into spans otherwise: no tenant, no dialect, no price. Those sit behind the Consumer.
package otlp
