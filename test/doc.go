// Package test drives the built program from outside, as its users do: the
// transcripts in testdata/script run against a real "berth serve", on the fake
// driver and, as root, on gVisor.
package test
