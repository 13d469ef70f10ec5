// Package price works out what one call costs, exactly.
//
// It guarantees integer arithmetic from the price file to the figure, with one
// half-even rounding per priced component; that a model without a price line is
// unpriced and never free; and that every figure can be explained line by line.
// It refuses price rows it cannot trust and names each of them. It does no I/O
// while pricing, so trace assembly may call it under its lock.
//
// A price is chosen by, in this order: tenant override over own files over other
// sources over the embedded catalogue; a named provider over "*"; an exact name
// over the longest glob; and only if the line is in force at the call's start.
package price

//go:generate ./gen/run.sh
