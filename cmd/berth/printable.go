package main

import (
	"strings"
	"unicode"
)

// printable makes text from a sandbox or a server safe for a terminal: control
// characters, which could move the cursor or rewrite the screen, become '?'.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t':
			return r
		case unicode.IsControl(r), r == '\u202e', r == '\u2066', r == '\u2067', r == '\u2068':
			return '?'
		}
		return r
	}, s)
}
