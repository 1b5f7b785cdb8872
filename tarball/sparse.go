package tarball

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
)

const block = 64 << 10 // bytes that are looked at for zeros together

var zeros [block]byte

// CopySparse writes what r gives into f, which is empty, and leaves holes where
// blocks are zero. It ends early with the context's error, between two reads.
func CopySparse(ctx context.Context, f *os.File, r io.Reader) (int64, error) {
	buf := make([]byte, block)
	var at int64
	for {
		if err := ctx.Err(); err != nil {
			return at, err
		}
		n, err := fill(r, buf)
		if n > 0 && !bytes.Equal(buf[:n], zeros[:n]) {
			if _, err := f.WriteAt(buf[:n], at); err != nil {
				return at, err
			}
		}
		at += int64(n)
		switch {
		case errors.Is(err, io.EOF):
			return at, f.Truncate(at) // a hole at the end is part of the file
		case err != nil:
			return at, err
		}
	}
}

// fill reads until buf is full or r ends. Unlike io.ReadFull it passes the
// source's error on as it is: io.EOF is the end, io.ErrUnexpectedEOF a break.
func fill(r io.Reader, buf []byte) (n int, err error) {
	for idle := 0; n < len(buf) && err == nil; {
		var m int
		m, err = r.Read(buf[n:])
		n += m
		if idle++; m > 0 {
			idle = 0
		} else if idle > 100 && err == nil {
			err = io.ErrNoProgress
		}
	}
	return n, err
}
