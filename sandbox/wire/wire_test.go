package wire_test

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

var events = []sandbox.Event{
	{Started: &sandbox.Process{ID: "p1", PID: 7, Argv: []string{"a", "\x00"}}},
	{Stream: sandbox.Stdout, Offset: 0, Data: []byte("one\xff")},
	{Stream: sandbox.Stderr, Offset: 1 << 40, Data: []byte{0}},
	{Stream: sandbox.Stdout, Offset: 4, Missed: 9},
	{Exit: &sandbox.Exit{Code: 137, Signal: "SIGKILL"}},
}

func frames(t testing.TB) []byte {
	var b bytes.Buffer
	w := wire.NewFrameWriter(&b)
	for _, e := range events {
		if err := errors.Join(w.Event(e), w.KeepAlive()); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func TestFramesComeBack(t *testing.T) {
	r := wire.NewFrameReader(bytes.NewReader(frames(t)))
	for _, want := range events {
		got, err := r.Recv()
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	}
	for range 2 {
		if _, err := r.Recv(); err != io.EOF {
			t.Errorf("after the last: %v", err)
		}
	}
}

func TestLargeOutputIsSplit(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789"), 250_000)
	var b bytes.Buffer
	if err := wire.NewFrameWriter(&b).Event(sandbox.Event{Stream: sandbox.Stderr, Offset: 5, Data: data}); err != nil {
		t.Fatal(err)
	}
	r, at := wire.NewFrameReader(&b), 0
	for at < len(data) {
		e, err := r.Recv()
		if err != nil || e.Offset != int64(5+at) || !bytes.HasPrefix(data[at:], e.Data) {
			t.Fatalf("at %d: offset %d, %d bytes, %v", at, e.Offset, len(e.Data), err)
		}
		at += len(e.Data)
	}
}

func TestErrorFrame(t *testing.T) {
	var b bytes.Buffer
	if err := wire.NewFrameWriter(&b).Error(wire.Error{Error: wire.ErrorDetail{Code: sandbox.Conflict, Message: "it is failed", Hint: "make another"}}); err != nil {
		t.Fatal(err)
	}
	_, err := wire.NewFrameReader(&b).Recv()
	if sandbox.KindOf(err) != sandbox.Conflict || err.Error() != "it is failed" || sandbox.HintOf(err) != "make another" {
		t.Errorf("got %v", err)
	}
}

func TestBrokenFrames(t *testing.T) {
	whole := frames(t)
	for n := range len(whole) {
		r := wire.NewFrameReader(bytes.NewReader(whole[:n]))
		var err error
		for err == nil {
			var e sandbox.Event
			if e, err = r.Recv(); e.Exit != nil {
				break // whole, but for the last keep-alive
			}
		}
		if err != nil && (sandbox.KindOf(err) != sandbox.Unavailable || errors.Is(err, io.EOF)) {
			t.Fatalf("cut at %d: %v", n, err)
		}
	}
	for name, b := range map[string]string{
		"huge": "\x02\xff\xff\xff\xff", "unknown": "\x63\x00\x00\x00\x00", "short output": "\x02\x00\x00\x00\x01x",
		"negative offset": "\x02\x00\x00\x00\x09\xff\xff\xff\xff\xff\xff\xff\xffx", "not JSON": "\x05\x00\x00\x00\x01{",
	} {
		if _, err := wire.NewFrameReader(strings.NewReader(b)).Recv(); sandbox.KindOf(err) != sandbox.Internal {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSSEComesBack(t *testing.T) {
	var b bytes.Buffer
	w := wire.NewSSEWriter(&b)
	if err := errors.Join(w.KeepAlive(), w.Named("progress", sandbox.Progress{Step: "a\nb"}), w.KeepAlive(), w.Event(events[1]), w.Event(events[4])); err != nil {
		t.Fatal(err)
	}
	r := wire.NewSSEReader(&b)
	for _, want := range [][2]string{{"progress", `{"step":"a\nb"}`}, {"stdout", `{"offset":0,"data":"b25l/w=="}`}, {"exit", `{"code":137,"signal":"SIGKILL"}`}} {
		name, data, err := r.Next()
		if err != nil || name != want[0] || string(data) != want[1] {
			t.Errorf("got %s %s, %v, want %v", name, data, err, want)
		}
	}
	if _, _, err := r.Next(); err != io.EOF {
		t.Errorf("after the last: %v", err)
	}
}

// FuzzFrames: whatever arrives, events are well formed and the reading ends.
func FuzzFrames(f *testing.F) {
	f.Add(frames(f))
	f.Add([]byte("\x07\x00\x00\x00\x02{}"))
	f.Add([]byte("\x02\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := wire.NewFrameReader(bytes.NewReader(b))
		for {
			e, err := r.Recv()
			if err != nil {
				return
			}
			set := 0
			for _, is := range []bool{e.Started != nil, e.Exit != nil, e.Missed > 0, len(e.Data) > 0} {
				if is {
					set++
				}
			}
			if set != 1 || e.Offset < 0 && len(e.Data) > 0 {
				t.Fatalf("event %+v", e)
			}
		}
	})
}

func FuzzSSE(f *testing.F) {
	f.Add("event: exit\ndata: {}\n\n")
	f.Add(": x\n\ndata\ndata: a\r\ndata:b\n\n")
	f.Add("event: \n\ndata: \xff\n\n")
	f.Fuzz(func(t *testing.T, s string) {
		r := wire.NewSSEReader(strings.NewReader(s))
		for range len(s) + 1 {
			if _, data, err := r.Next(); err != nil {
				return
			} else if len(data) > len(s) {
				t.Fatalf("%d bytes of data from %d", len(data), len(s))
			}
		}
		t.Fatal("more events than bytes")
	})
}
