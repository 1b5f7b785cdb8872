package wire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/berth-dev/berth/sandbox"
)

// The names of server-sent events. Every event's data is one line of JSON.
const (
	EventStarted  = "started"  // a Process
	EventStdout   = "stdout"   // {"offset","data"}, the data in base64
	EventStderr   = "stderr"   // likewise
	EventMissed   = "missed"   // {"stream","offset","missed"}
	EventExit     = "exit"     // an Exit; the last event
	EventProgress = "progress" // a Progress
	EventDone     = "done"     // the result of long work; the last event
	EventError    = "error"    // an Error; the last event
)

// MaxEvent bounds one server-sent event, in bytes.
const MaxEvent = 16 << 20

// SSEWriter writes server-sent events. It is for one goroutine at a time.
type SSEWriter struct{ w io.Writer }

// NewSSEWriter returns an SSEWriter to w.
func NewSSEWriter(w io.Writer) *SSEWriter { return &SSEWriter{w} }

// Event writes one event of a process.
func (s *SSEWriter) Event(e sandbox.Event) error {
	switch {
	case e.Started != nil:
		return s.Named(EventStarted, e.Started)
	case e.Exit != nil:
		return s.Named(EventExit, e.Exit)
	case e.Missed != 0:
		return s.Named(EventMissed, missed{e.Stream, e.Offset, e.Missed})
	}
	return s.Named(string(e.Stream), data{e.Offset, e.Data})
}

type data struct {
	Offset int64  `json:"offset"`
	Data   []byte `json:"data"`
}

// KeepAlive writes a comment, which readers ignore.
func (s *SSEWriter) KeepAlive() error {
	_, err := io.WriteString(s.w, ": keep-alive\n\n")
	return err
}

// Error writes the event that ends a broken stream.
func (s *SSEWriter) Error(e Error) error { return s.Named(EventError, e) }

// Named writes v as the event of that name, in a single Write.
func (s *SSEWriter) Named(name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var buf bytes.Buffer
	buf.Grow(len(name) + len(b) + 16)
	buf.WriteString("event: " + name + "\ndata: ")
	buf.Write(b)
	buf.WriteString("\n\n")
	_, err = s.w.Write(buf.Bytes())
	return err
}

// SSEReader reads server-sent events. It is for one goroutine at a time.
type SSEReader struct{ s *bufio.Scanner }

// NewSSEReader returns an SSEReader from r.
func NewSSEReader(r io.Reader) *SSEReader {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, 4096), MaxEvent)
	return &SSEReader{s}
}

// Next returns the next event's name and data, comments left out. The end of the
// input is io.EOF; an event that is cut off by it is dropped, as the format says.
func (s *SSEReader) Next() (name string, data []byte, err error) {
	has := false
	for s.s.Scan() {
		line := s.s.Text()
		if line == "" {
			if has {
				return name, data, nil
			}
			name = ""
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "event":
			name = value
		case "data":
			if has {
				data = append(data, '\n')
			}
			if len(data)+len(value) > MaxEvent {
				return "", nil, malformed("an event over %d bytes", MaxEvent)
			}
			data, has = append(data, value...), true
		}
	}
	switch err := s.s.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return "", nil, malformed("an event over %d bytes", MaxEvent)
	case err != nil:
		return "", nil, cut(err)
	}
	return "", nil, io.EOF
}
