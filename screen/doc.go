// Package screen keeps what a terminal shows: bytes that programs write go in,
// and bytes that make any other terminal show the same come out.
//
// It speaks what xterm speaks, as far as programs use it: both screens, the
// scrolled-off lines, colours and attributes, wide and combining characters,
// scroll regions, tab stops, character sets, titles and input modes. It does not
// know left and right margins, images and palettes; they pass it by unseen.
// Every input is safe: sizes, parameters and strings are bounded.
package screen
