// Package trace turns Calls into signed entries. It is the only place that posts
// entries of a call, and what it decides is decided once: leaf or aggregate, who
// a call was made for, which attempt of which logical call it is, and what it
// costs.
//
// It guarantees that the entries of a trace do not depend on the order in which
// its spans arrive once all of them are here and settled; that a repeated span
// posts nothing; that a correction is one step, -1 for the old version and +1
// for the new; and that its memory is bounded: traces that rest go to the local
// store and come back when a late span asks for them. It refuses to decide
// again on replay: it applies what the log recorded.
//
// It sits between dialect, which knows single spans, and the write-ahead log.
// DESIGN.md in this directory has the rules and the subtle parts.
package trace
