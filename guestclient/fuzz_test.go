package guestclient

import (
	"testing"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	guestv1 "github.com/berth-dev/berth/guestapi/v1"
	"github.com/berth-dev/berth/sandbox"
)

func FuzzText(f *testing.F) {
	f.Add("plain", 3)
	f.Add("éééé", 3)
	f.Add("\xff\xfe\x1b[31m", 100)
	f.Add("\u0085\u009b", 1)
	f.Fuzz(func(t *testing.T, s string, size int) {
		if size < 0 || size > 4096 {
			return
		}
		got := text(s, size)
		if !utf8.ValidString(got) || len(got) > 3*size {
			t.Errorf("%q in %d became %q", s, size, got)
		}
		for _, r := range got {
			if unicode.IsControl(r) {
				t.Errorf("%q became %q", s, got)
			}
		}
	})
}

// FuzzFrames gives bytes of the guest's to what takes its messages over.
func FuzzFrames(f *testing.F) {
	for _, m := range []proto.Message{
		&guestv1.Process{Id: "p1", Pid: 2, Argv: [][]byte{[]byte("x")}, Exit: &guestv1.Exit{Code: 1}},
		&guestv1.Terminal{Id: "t1", Pid: 2, Cols: 80, Rows: 24, Argv: [][]byte{[]byte("x")}},
		&guestv1.FileInfo{Path: []byte("/x"), Type: "file", Size: 1},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var p guestv1.Process
		if proto.Unmarshal(b, &p) == nil {
			if q, err := process(&p); err == nil && (q.ID == "" || q.PID < 1 || (q.Exit != nil && (q.Exit.Code < 0 || q.Exit.Code > 255))) {
				t.Errorf("%+v", q)
			}
		}
		var term guestv1.Terminal
		if proto.Unmarshal(b, &term) == nil {
			if q, err := terminal(&term); err == nil && (!sandbox.IsTerminalID(q.ID) || sandbox.CheckTerminalSize(q.Cols, q.Rows) != nil) {
				t.Errorf("%+v", q)
			}
		}
		var i guestv1.FileInfo
		if proto.Unmarshal(b, &i) == nil {
			if q, err := fileInfo(&i); err == nil && (sandbox.CheckPath(q.Path) != nil || q.Size < 0 || q.Mode > 0o7777) {
				t.Errorf("%+v", q)
			}
		}
	})
}

func FuzzFileAnswers(f *testing.F) {
	f.Add([]byte(`{"path":"L3g=","type":"file","size":"3"}`))
	f.Add([]byte(`{"code":"not_found","message":"x"}`))
	f.Add([]byte(`{"path":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if info, err := decodeInfo(b); err == nil && sandbox.CheckPath(info.Path) != nil {
			t.Errorf("%+v", info)
		}
		if err := decodeError("test", 422, b); sandbox.KindOf(err) == "" {
			t.Errorf("%v has no kind", err)
		}
	})
}
