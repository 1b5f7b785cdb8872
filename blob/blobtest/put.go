package blobtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"

	"github.com/berth-dev/berth/blob"
	"github.com/berth-dev/berth/sandbox"
)

// visibleWholeOrNot looks at the store while a blob is half stored.
func visibleWholeOrNot(t *testing.T, open Open) {
	s := open(t, t.TempDir())
	b := samples()[4]
	pr, pw := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := s.Put(t.Context(), pr)
		done <- err
	}()
	if _, err := pw.Write(b[:len(b)/2]); err != nil {
		t.Fatal(err)
	}
	wantList(t, s)
	_, err := s.Stat(t.Context(), digestOf(b))
	wantKind(t, "stat of a half blob", err, sandbox.NotFound)
	_, err = s.Stat(t.Context(), digestOf(b[:len(b)/2]))
	wantKind(t, "stat of its first half", err, sandbox.NotFound)
	if _, err := pw.Write(b[len(b)/2:]); err != nil {
		t.Fatal(err)
	}
	pw.Close()
	if err := <-done; err != nil {
		t.Fatalf("put: %v", err)
	}
	wantBytes(t, s, digestOf(b), 0, b)
}

// readerFails ends a Put by an error of its reader, and by its context.
func readerFails(t *testing.T, open Open) {
	s := open(t, t.TempDir())
	broken := errors.New("the source broke")
	_, err := s.Put(t.Context(), io.MultiReader(bytes.NewReader(samples()[4]), failing{broken}))
	if !errors.Is(err, broken) {
		t.Errorf("put: %v, want it to wrap the reader's error", err)
	}
	refused := sandbox.Errorf("read", sandbox.Forbidden, "refused")
	_, err = s.Put(t.Context(), failing{refused})
	wantKind(t, "put from a reader whose error has a kind", err, sandbox.Forbidden)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err = s.Put(ctx, cancelling{cancel, bytes.NewReader(samples()[4])})
	wantCancelled(t, "put", err)
	wantList(t, s)
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// cancelling ends the context with its first read.
type cancelling struct {
	cancel context.CancelFunc
	r      io.Reader
}

func (c cancelling) Read(p []byte) (int, error) {
	c.cancel()
	return c.r.Read(p[:min(len(p), 1000)])
}

// concurrent stores equal and different blobs from many goroutines while
// others read and list them.
func concurrent(t *testing.T, open Open) {
	s := open(t, t.TempDir())
	shared := samples()[3]
	var own [][]byte
	for i := range 8 {
		own = append(own, []byte(fmt.Sprint("own ", i)))
	}
	var all sync.WaitGroup
	for _, b := range own {
		all.Go(func() {
			for _, b := range [][]byte{shared, b, shared} {
				info, err := s.Put(t.Context(), bytes.NewReader(b))
				if err != nil {
					t.Errorf("put: %v", err)
					return
				}
				wantBytes(t, s, info.Digest, 0, b)
			}
			if err := s.List(t.Context(), func(blob.Info) error { return nil }); err != nil {
				t.Errorf("list: %v", err)
			}
		})
	}
	all.Wait()
	wantList(t, s, append(own, shared)...)
}
