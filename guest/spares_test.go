package guest

import (
	"bytes"
	"io"
	"syscall"
	"testing"
)

func TestSparesAreFewAndEnd(t *testing.T) {
	var none *spares
	if _, ok := none.take(); ok {
		t.Error("no spares gave a pipe")
	}
	var s spares
	s.fill()
	s.fill()
	if len(s.pipes) != streams {
		t.Fatalf("%d lie ready, want %d", len(s.pipes), streams)
	}
	for range streams {
		p, ok := s.take()
		if !ok {
			t.Fatal("none was there")
		}
		if _, err := syscall.Write(p.theirs, []byte("said")); err != nil {
			t.Fatal(err)
		}
		syscall.Close(p.theirs)
		got, err := io.ReadAll(p.ours)
		if err != nil || !bytes.Equal(got, []byte("said")) {
			t.Errorf("read %q, %v", got, err)
		}
		p.ours.Close()
	}
	if _, ok := s.take(); ok {
		t.Error("one more was there")
	}
	s.fill()
	s.close()
	s.fill()
	if len(s.pipes) != 0 {
		t.Errorf("%d lie ready after the end", len(s.pipes))
	}
}
