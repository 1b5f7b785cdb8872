package main

import (
	"context"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// Bounds on taking up a stream of a log again.
const (
	followTries = 30
	followPause = time.Second
)

// logEntries is a log of the server's as it grows.
type logEntries[T any] interface {
	Recv() (T, error)
	Close() error
}

// listLog prints a log from a cursor on, until a page of it is not full.
func listLog[T any](after string, full int, show func(T) error, page func(after string) ([]T, string, error)) error {
	for {
		entries, next, err := page(after)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := show(e); err != nil {
				return err
			}
		}
		if len(entries) < full {
			return nil
		}
		after = next
	}
}

// followLog prints a log's entries, and takes the stream up again behind the last one
// when it breaks. One that broke before its first entry is not begun again.
func followLog[T any](ctx context.Context, after string, begin func(after string) (logEntries[T], error), show func(T) (cursor string, err error)) error {
	signalIgnoreBrokenPipe()
	for failed := 0; ; failed++ {
		last, err := showLog(after, begin, show)
		if last != after {
			after, failed = last, 0
		}
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		if sandbox.KindOf(err) != sandbox.Unavailable || after == "" || failed >= followTries {
			return err
		}
		select {
		case <-time.After(followPause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// showLog prints one stream's entries and returns how far it came.
func showLog[T any](after string, begin func(after string) (logEntries[T], error), show func(T) (string, error)) (string, error) {
	stream, err := begin(after)
	if err != nil {
		return after, err
	}
	defer stream.Close()
	for {
		e, err := stream.Recv()
		if err != nil {
			return after, err
		}
		cursor, err := show(e)
		if err != nil {
			return after, err
		}
		after = cursor
	}
}
