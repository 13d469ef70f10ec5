// Package schema holds what every other part of Flyball shares: the Call that a
// dialect reads out of a span, the signed Entry that is posted for it, exact
// money, identities and keys, the binary form of an entry that the write-ahead
// log, the local store and memory share, and the ClickHouse migrations.
//
// It guarantees that an entry reads back bit for bit as it was written, and that
// money never passes through a float. It refuses to decode a form it does not
// know. It sits below everything: it imports no other package of the project
// except its own children.
package schema
