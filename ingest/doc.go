// Package ingest brings telemetry in: it connects the receivers to the dialects,
// the dialects to trace assembly, that to the write-ahead log, and the log to
// ClickHouse.
//
// It guarantees that a sender's success means fsynced, that every received span
// is new, a duplicate or rejected with a reason, and that each entry reaches the
// journal and its rollups exactly once. It refuses new data, with a retryable
// answer, before the disk is full. It never reads ClickHouse on the way in.
package ingest
