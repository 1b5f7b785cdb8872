package e2b

import (
	"context"
	"errors"
	"path"
	"testing"

	"github.com/berth-dev/berth/sandbox"
)

// tree is the files of a sandbox: of each path where it leads, or "" if it is no link.
type tree struct {
	Engine
	at    map[string]string
	stats int
}

func (t *tree) Stat(_ context.Context, _, p string, _ bool) (sandbox.FileInfo, error) {
	t.stats++
	target, ok := t.at[p]
	if !ok {
		return sandbox.FileInfo{}, &sandbox.Error{Kind: sandbox.NotFound, Err: errors.New("no such file")}
	}
	fi := sandbox.FileInfo{Name: path.Base(p), Path: p, Type: sandbox.TypeFile, Target: target}
	if target != "" {
		fi.Type = sandbox.TypeSymlink
	}
	return fi, nil
}

func TestLinks(t *testing.T) {
	files := &tree{at: map[string]string{"/d": "", "/d/file": "", "/one": "d/file", "/two": "/one", "/dir": "d", "/d/up": "../two", "/loop": "loop", "/a": "b", "/b": "a", "/broken": "nosuch", "/out": "../../../d/file"}}
	for from, want := range map[string]string{
		"/d/file": "/d/file", "/one": "/d/file", "/two": "/d/file", "/dir": "/d", "/dir/file": "/d/file", "/dir/up": "/d/file", "/out": "/d/file", "/": "/",
		"/loop": "", "/a": "", "/broken": "", "/nosuch/x": "",
	} {
		l := &links{engine: files, known: map[string]ending{}}
		got, err := l.end(t.Context(), from)
		if err == nil && got.path != want || (err == nil) != (want != "") {
			t.Errorf("%s leads to %q, %v, want %q", from, got.path, err, want)
		}
	}
	l := &links{engine: files, known: map[string]ending{}}
	for range 3 {
		if _, err := l.end(t.Context(), "/dir/file"); err != nil {
			t.Fatal(err)
		}
	}
	if before := files.stats; before == 0 {
		t.Fatal("nothing was asked")
	} else if _, err := l.end(t.Context(), "/dir/file"); err != nil || files.stats != before {
		t.Errorf("what is known was asked for again: %d, %v", files.stats-before, err)
	}
}
