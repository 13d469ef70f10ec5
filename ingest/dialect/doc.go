// Package dialect reads one telemetry record, a span or a log event, into Calls.
//
// It guarantees that a record is read the same way whatever surrounds it: the
// functions are pure, they know one record and the tables in this package. It
// keeps no content: prompts, answers and tool arguments are looked at for usage,
// ids and a keyed hash, and dropped. It refuses token counts that cannot be
// counts. What needs the rest of the trace (leaf or aggregate, retries,
// inheritance) is left to package trace, for which Role bits say what a record
// may be.
//
// Dialects overlap on the same span (one emitter writes old names, new names and
// a vendor's own beside each other), so the tables are cut by question, not by
// vendor: keys.go names the attributes, kind.go says what a span is, usage.go and
// emitters.go what its counts mean, raw.go reads provider answers found inside
// attributes, failure.go why it failed, logs.go the agent command lines.
package dialect
