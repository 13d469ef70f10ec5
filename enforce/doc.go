// Package enforce closes the loop: entries become counters, counters that cross a
// limit become directives and pages, and limiters that follow the directives say
// what they applied.
//
// It guarantees that a decision depends on the policy, the ledger and the entries
// alone, in the order of the write-ahead log; that what was decided survives a
// crash and is not decided twice; that a kill stays until somebody lifts it; and
// that neither ClickHouse nor a slow receiver of pages holds up a decision. It
// hangs off the log, behind ingest and before the database.
package enforce
