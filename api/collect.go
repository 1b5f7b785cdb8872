package api

import (
	"encoding/base64"
	"unicode/utf8"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

// maxCollected is how much of each output an answer holds, in bytes.
const maxCollected = 10 << 20

// collector is a sink that keeps what a process did for one answer: the first
// maxCollected bytes of each output. It reads on beyond them, so that the
// process never waits.
type collector struct {
	process        *sandbox.Process
	exit           *sandbox.Exit
	stdout, stderr collected
}

type collected struct {
	data      []byte
	truncated bool
}

func (c *collector) KeepAlive() error { return nil }

func (c *collector) Event(e sandbox.Event) error {
	switch {
	case e.Started != nil:
		c.process = e.Started
	case e.Exit != nil:
		c.exit = e.Exit
	case e.Stream == sandbox.Stderr:
		c.stderr.add(e)
	default:
		c.stdout.add(e)
	}
	return nil
}

func (c *collected) add(e sandbox.Event) {
	n := min(len(e.Data), maxCollected-len(c.data))
	c.data = append(c.data, e.Data[:n]...)
	if n < len(e.Data) || e.Missed > 0 {
		c.truncated = true
	}
}

// output is the answer. Text stays text if both outputs are; one that was cut
// within a character loses the part.
func (c *collector) output() wire.Output {
	c.stdout.trim()
	c.stderr.trim()
	o := wire.Output{Process: c.process, Exit: c.exit, Encoding: wire.EncodingText,
		StdoutTruncated: c.stdout.truncated, StderrTruncated: c.stderr.truncated}
	encode := func(b []byte) string { return string(b) }
	if !utf8.Valid(c.stdout.data) || !utf8.Valid(c.stderr.data) {
		o.Encoding, encode = wire.EncodingBase64, base64.StdEncoding.EncodeToString
	}
	o.Stdout, o.Stderr = encode(c.stdout.data), encode(c.stderr.data)
	return o
}

func (c *collected) trim() {
	if !c.truncated {
		return
	}
	for range utf8.UTFMax - 1 {
		if r, size := utf8.DecodeLastRune(c.data); r != utf8.RuneError || size != 1 {
			return
		}
		c.data = c.data[:len(c.data)-1]
	}
}
