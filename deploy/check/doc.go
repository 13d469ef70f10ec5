// Package check holds the tests of what is in deploy for people who run Flyball: that
// compose.yaml is valid and closed as its page says, that each tool accepts the
// configuration meant for it, and, where deploy/check.sh has built the binaries, that the
// parts work together as processes.
//
// It is a module of its own, so that the reference implementation of the Compose
// specification is no dependency of the program. Nothing imports it.
package check
