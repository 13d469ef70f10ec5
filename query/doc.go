// Package query answers questions about what is stored: the HTTP API that scripts,
// the command line and the page at / use.
//
// It guarantees that every query binds the tenants of the credential, that names
// in a request become SQL only from closed lists, that a money figure is an exact
// decimal string, and that beside every total stands how much is unpriced,
// unknown or sampled. It refuses unknown parameters. It reads ClickHouse and
// writes nothing.
package query
