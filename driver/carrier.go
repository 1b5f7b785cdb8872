package driver

import (
	"context"
	"errors"
	"io"
)

// Carrier is a Machine that moves the bytes of large files between its host and
// its guest without the guest's link.
type Carrier interface {
	// Carry reserves a way for one file. It is false while all ways are taken: then
	// the bytes go over the link. Whoever gets a way closes it.
	Carry() (Carriage, bool)
}

// Carriage is the way of one file, for one call. The file is a regular one that
// the guest's first process has open as a descriptor, and keeps open meanwhile.
//
// An error is ErrNotCarried if this file cannot go that way; then nothing has been
// read or written. It has a syscall.Errno in its chain if the file refused. It is
// the error of the reader or the writer that was given, as it is, or the context's.
// Any other is Unavailable: the machine has ended.
type Carriage interface {
	// Fill writes what from gives, to its end, from the beginning of the file on,
	// which is empty. Where that is zero it may leave a hole: the file's size is the
	// guest's to set, to as many bytes as Fill returns. from is not read any more
	// once Fill has returned.
	Fill(ctx context.Context, file int, from io.Reader) (int64, error)

	// Drain gives to what the file holds from offset on, length bytes of it or, if
	// the file is shorter by now, less. It never gives more.
	Drain(ctx context.Context, file int, offset, length int64, to io.Writer) (int64, error)

	// Close gives the way back. After a call it returns when that has ended.
	Close() error
}

// ErrNotCarried is the error of a file that only goes over the link.
var ErrNotCarried = errors.New("the file only goes over the link")
