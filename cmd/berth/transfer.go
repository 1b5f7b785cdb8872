package main

import (
	"fmt"
	"io"
	"sync"

	"github.com/berth-dev/berth/client"
	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/tarball"
)

// copyStep is what the progress of a copy says.
const copyStep = "copy"

// transfer is one copy under way: what it may do and how far it is.
type transfer struct {
	client    *client.Client
	recursive bool
	skipped   []left // under mu; the first of those left out
	leftOut   int64  // all of them
	in        io.Reader
	out       io.Writer

	mu       sync.Mutex // a request's body may still be read after its answer
	progress *progress
	over     bool
	files    int64 // done
	bytes    int64 // done
	total    int64 // bytes to do, 0 when it is not known
}

// left is what was left out, and why.
type left struct{ name, reason string }

// maxLeft bounds what is told of what was left out.
const maxLeft = 1000

func (t *transfer) skip(name, reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leftOut++
	if len(t.skipped) < maxLeft {
		t.skipped = append(t.skipped, left{name, reason})
	}
}

// finish takes over what a stream held; its frame is not counted.
func (t *transfer) finish(c tarball.Counts) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.files, t.bytes = c.Files+c.Links, c.Bytes
}

// counted is r that moves the progress as it is read.
func (t *transfer) counted(r io.Reader) io.Reader { return &countingReader{r: r, t: t} }

type countingReader struct {
	r io.Reader
	t *transfer
}

func (c *countingReader) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.t.moved(int64(n))
	return n, err
}

// reportFrom is the size from which a copy shows how far it is.
const reportFrom = 8 << 20

func (t *transfer) moved(n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bytes += n
	if !t.over && max(t.bytes, t.total) >= reportFrom {
		t.progress.report(sandbox.Progress{Step: copyStep, Done: t.bytes, Total: t.total, Unit: "bytes"})
	}
}

// end stops the progress.
func (t *transfer) end(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	t.progress.end(err)
}

// reportCopy says what was copied, unless a standard stream was part of it. A copy
// that is not whole is an error.
func (p *program) reportCopy(t *transfer, stream bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if stream {
		return nil
	}
	for _, l := range t.skipped {
		fmt.Fprintf(p.err, "skipped %s: %s\n", printable(l.name), l.reason)
	}
	if err := p.reportCounts(t); err != nil || t.leftOut == 0 {
		return err
	}
	return &exitError{code: exitFailure, err: &sandbox.Error{Op: "copy", Kind: sandbox.Unsupported,
		Err:  fmt.Errorf("%s left out", count(t.leftOut, "entry was", "entries were")),
		Hint: "all others were copied; a tar stream keeps links of every kind: berth exec ID -- tar -c -C DIR ."}}
}

// reportCounts is called with the transfer's lock held.
func (p *program) reportCounts(t *transfer) error {
	if p.json {
		return writeJSON(p.out, map[string]int64{"files": t.files, "bytes": t.bytes, "skipped": t.leftOut})
	}
	_, err := fmt.Fprintf(p.err, "copied %s, %s\n", count(t.files, "file", "files"), size(t.bytes))
	return err
}

func count(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
