// Package query answers questions about what is stored: the HTTP API that scripts,
// the command line and the console at / use.
//
// It guarantees that every query binds the tenants of the credential and that a
// second check of the rows it answers fails rather than show another's; that names
// in a request become SQL only from closed lists; that a money figure is an exact
// decimal string of signed sums; that beside every total stands how much is
// unpriced, unknown or sampled, and that a total is of everything even where limit
// cuts the rows (then truncated is true). Days begin in the tenant's zone; where
// several tenants disagree, in UTC, and the answer says which. It refuses unknown
// parameters, and without keys every caller but this machine. It reads ClickHouse;
// the one thing it writes is the close of a month, for a key with role admin.
//
// spend, retries, coverage, movers, rate limits and closed months come from the
// quarter-hour rollup and widen from and to to whole quarters; everything else, also
// the FOCUS file, whose days are whole, is exact to the nanosecond.
package query
