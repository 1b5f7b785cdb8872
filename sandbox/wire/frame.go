package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"

	"github.com/berth-dev/berth/sandbox"
)

// A raw stream is a sequence of frames: one byte of type, four bytes of length
// (big endian), and that many bytes of payload.
const (
	frameStarted   = 1 // a Process as JSON
	frameStdout    = 2 // eight bytes of offset (big endian), then the data
	frameStderr    = 3 // likewise
	frameMissed    = 4 // {"stream","offset","missed"} as JSON
	frameExit      = 5 // an Exit as JSON; the last frame
	frameKeepAlive = 6 // nothing; to be ignored
	frameError     = 7 // an Error as JSON; the last frame: the stream broke, the process may live on

	frameHeader = 5
	offsetBytes = 8

	// MaxPayload bounds the payload of a frame, in bytes. A Process with the
	// longest command line, every byte of it escaped, fits.
	MaxPayload = 8 << 20
	maxData    = 1 << 20 // of output in one frame; more is split
)

// FrameWriter writes a raw stream. It is for one goroutine at a time.
type FrameWriter struct{ w io.Writer }

// NewFrameWriter returns a FrameWriter to w.
func NewFrameWriter(w io.Writer) *FrameWriter { return &FrameWriter{w} }

// Event writes one event.
func (f *FrameWriter) Event(e sandbox.Event) error {
	switch {
	case e.Started != nil:
		return f.json(frameStarted, e.Started)
	case e.Exit != nil:
		return f.json(frameExit, e.Exit)
	case e.Missed != 0:
		return f.json(frameMissed, missed{e.Stream, e.Offset, e.Missed})
	}
	return f.data(e)
}

// KeepAlive writes a frame that says nothing.
func (f *FrameWriter) KeepAlive() error { return f.frame(frameKeepAlive, nil, nil) }

// Error writes the frame that ends a broken stream.
func (f *FrameWriter) Error(e Error) error { return f.json(frameError, e) }

// missed is the payload of a gap in the output.
type missed struct {
	Stream sandbox.Stream `json:"stream"`
	Offset int64          `json:"offset"`
	Missed int64          `json:"missed"`
}

func (f *FrameWriter) data(e sandbox.Event) error {
	kind := byte(frameStdout)
	if e.Stream == sandbox.Stderr {
		kind = frameStderr
	}
	for off, data := e.Offset, e.Data; len(data) > 0; {
		n := min(len(data), maxData)
		if err := f.frame(kind, binary.BigEndian.AppendUint64(nil, uint64(off)), data[:n]); err != nil {
			return err
		}
		off, data = off+int64(n), data[n:]
	}
	return nil
}

func (f *FrameWriter) json(kind byte, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return f.frame(kind, nil, b)
}

// frame writes one frame in a single Write, so that a flush never splits it.
func (f *FrameWriter) frame(kind byte, head, body []byte) error {
	size := len(head) + len(body)
	if size > MaxPayload {
		return sandbox.Errorf("write frame", sandbox.Internal, "a payload of %d bytes, at most %d fit", size, MaxPayload)
	}
	b := make([]byte, 0, frameHeader+size)
	b = append(b, kind)
	b = binary.BigEndian.AppendUint32(b, uint32(size))
	b = append(b, head...)
	b = append(b, body...)
	_, err := f.w.Write(b)
	return err
}

// FrameReader reads a raw stream. It is for one goroutine at a time.
type FrameReader struct {
	r     io.Reader
	ended bool
}

// NewFrameReader returns a FrameReader from r.
func NewFrameReader(r io.Reader) *FrameReader { return &FrameReader{r: r} }

// Recv returns the next event; io.EOF follows the Exit. An error frame comes
// back as the *sandbox.Error that it holds, a stream that ends too early as
// Unavailable, a malformed one as Internal.
func (f *FrameReader) Recv() (sandbox.Event, error) {
	for !f.ended {
		kind, payload, err := f.next()
		if err != nil {
			return sandbox.Event{}, err
		}
		if kind == frameKeepAlive {
			continue
		}
		return f.decode(kind, payload)
	}
	return sandbox.Event{}, io.EOF
}

func (f *FrameReader) next() (byte, []byte, error) {
	var head [frameHeader]byte
	if _, err := io.ReadFull(f.r, head[:]); err != nil {
		return 0, nil, cut(err)
	}
	size := binary.BigEndian.Uint32(head[1:])
	if size > MaxPayload {
		return 0, nil, malformed("a payload of %d bytes, at most %d are taken", size, MaxPayload)
	}
	// The buffer grows with what arrives, not with what the header promises.
	var buf bytes.Buffer
	if _, err := io.CopyN(&buf, f.r, int64(size)); err != nil {
		return 0, nil, cut(err)
	}
	return head[0], buf.Bytes(), nil
}

func (f *FrameReader) decode(kind byte, payload []byte) (e sandbox.Event, err error) {
	switch kind {
	case frameStarted:
		e.Started = new(sandbox.Process)
		err = into(payload, e.Started)
	case frameStdout:
		return output(sandbox.Stdout, payload)
	case frameStderr:
		return output(sandbox.Stderr, payload)
	case frameMissed:
		var m missed
		err = into(payload, &m)
		e = sandbox.Event{Stream: m.Stream, Offset: m.Offset, Missed: m.Missed}
		if err == nil && m.Missed <= 0 {
			err = malformed("a gap of %d bytes", m.Missed)
		}
	case frameExit:
		f.ended = true
		e.Exit = new(sandbox.Exit)
		err = into(payload, e.Exit)
	case frameError:
		var body Error
		if err = into(payload, &body); err == nil {
			err = body.Err()
		}
	default:
		err = malformed("a frame of type %d", kind)
	}
	if err != nil {
		return sandbox.Event{}, err
	}
	return e, nil
}

func output(s sandbox.Stream, payload []byte) (sandbox.Event, error) {
	if len(payload) <= offsetBytes {
		return sandbox.Event{}, malformed("an output frame of %d bytes", len(payload))
	}
	off := int64(binary.BigEndian.Uint64(payload))
	if off < 0 {
		return sandbox.Event{}, malformed("a negative offset")
	}
	return sandbox.Event{Stream: s, Offset: off, Data: payload[offsetBytes:]}, nil
}

func into(payload []byte, v any) error {
	if err := json.Unmarshal(payload, v); err != nil {
		return malformed("%w", err)
	}
	return nil
}

func malformed(format string, args ...any) error {
	return sandbox.Errorf("read stream", sandbox.Internal, "malformed: "+format, args...)
}

// cut turns the end of a stream before its last frame into an error that says so.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return &sandbox.Error{Op: "read stream", Kind: sandbox.Unavailable, Err: err,
		Hint: "the process may live on: attach to it with the offsets you have"}
}
