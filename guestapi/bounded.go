package guestapi

import (
	"errors"
	"io"
)

var errBound = errors.New("a header is too long")

// Bounded reads from R; while Left is more than 0, that is how many bytes it may still read.
// It bounds a header that the other side sends, which net/http reads to whatever end it has.
type Bounded struct {
	R    io.Reader
	Left int // bytes; 0 or less is no bound
}

// Read implements io.Reader. What is beyond the bound is an error, with what was read up
// to it.
func (b *Bounded) Read(p []byte) (int, error) {
	if b.Left <= 0 {
		return b.R.Read(p)
	}
	n, err := b.R.Read(p[:min(len(p), b.Left)])
	if b.Left -= n; b.Left <= 0 && err == nil {
		err = errBound
	}
	return n, err
}
