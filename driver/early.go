package driver

import (
	"context"
	"io"
)

// Early is a Snapshotter whose machines begin before all of their folder is there.
type Early interface {
	// Late names the file of a captured folder, slash-separated, of which a machine
	// need not have all to begin.
	Late() string

	// RestoreEarly does as Restore. The file that Late names has the length that it
	// will have, and of its bytes what feed tells of. The machine asks for what it
	// needs next; a program that comes upon what is not there waits for it. If feed
	// fails the machine ends, with feed's error as the reason; if it fails because it
	// was cancelled the machine waits for Refeed, for ten minutes at most.
	//
	// Pause with KeepMemory, Capture with KeepMemory and Fork wait until all is there.
	RestoreEarly(ctx context.Context, spec Spec, dir string, feed Feed) (Machine, error)

	// Refeed goes on with it for a machine that Recover has given, after the process
	// that fed it has ended. If the machine lacks something, fill is called with the
	// file and the parts that it lacks, each an offset and a length, and returns who
	// tells of them; the file may be written until that one says io.EOF. Whole is
	// closed once the machine lacks nothing or has ended; it is closed already if it
	// lacked nothing.
	Refeed(ctx context.Context, m Machine, fill Fill) (whole <-chan struct{}, err error)
}

// Feed tells which parts of a file are there.
type Feed interface {
	// Want asks for n bytes at an offset before others. It does not wait.
	Want(offset, n int64)

	// Next returns the part that came as number i, from 0 on, and waits for it. The
	// error is io.EOF if all of the file is there and no more parts come.
	Next(ctx context.Context, i int) (offset, n int64, err error)
}

// Fill begins to fill the parts of a file that are lacking. The file is the callee's
// to close.
type Fill func(file File, lacks [][2]int64) (Feed, error)

// File is where a Fill writes.
type File interface {
	io.WriterAt
	io.Closer
}
