package e2b

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	pb "github.com/berth-dev/berth/dialect/e2b/envd/filesystem"
	"github.com/berth-dev/berth/sandbox"
)

// disk is the files of a sandbox, by path.
type disk struct {
	Engine
	files map[string]sandbox.FileInfo
}

func (d *disk) Stat(_ context.Context, _, p string, _ bool) (sandbox.FileInfo, error) {
	fi, ok := d.files[p]
	if !ok {
		return fi, &sandbox.Error{Kind: sandbox.NotFound, Err: errors.New("no such file")}
	}
	fi.Path = p
	return fi, nil
}

func TestChangesAsTold(t *testing.T) {
	at := time.Unix(1000, 0)
	file := func(size int64, age time.Duration) sandbox.FileInfo {
		return sandbox.FileInfo{Type: sandbox.TypeFile, Size: size, Modified: at.Add(age)}
	}
	made, written, meta := sandbox.WatchEvent{Type: sandbox.WatchCreate, Path: "/w/f"}, sandbox.WatchEvent{Type: sandbox.WatchModify, Path: "/w/f"}, sandbox.WatchEvent{Type: sandbox.WatchAttrib, Path: "/w/f"}
	type step struct {
		now  sandbox.FileInfo
		e    sandbox.WatchEvent
		want []pb.EventType
	}
	for name, steps := range map[string][]step{
		"told late":               {{file(3, 0), made, []pb.EventType{create, chmod, write}}, {file(3, 0), meta, nil}, {file(3, 0), written, nil}},
		"told early":              {{file(0, 0), made, []pb.EventType{create, chmod}}, {file(0, 0), meta, nil}, {file(3, 0), written, []pb.EventType{write}}},
		"written on":              {{file(3, 0), made, []pb.EventType{create, chmod, write}}, {file(4, 1), written, []pb.EventType{write}}},
		"written anew":            {{file(3, 0), made, []pb.EventType{create, chmod, write}}, {file(3, 1), written, []pb.EventType{write}}},
		"emptied":                 {{file(0, 0), made, []pb.EventType{create, chmod}}, {file(0, 0), written, []pb.EventType{write}}},
		"a folder":                {{sandbox.FileInfo{Type: sandbox.TypeDir}, made, []pb.EventType{create}}},
		"what was there":          {{file(3, 0), written, []pb.EventType{write}}, {file(3, 0), meta, []pb.EventType{chmod}}},
		"removed and made anew":   {{file(3, 0), made, []pb.EventType{create, chmod, write}}, {file(3, 0), sandbox.WatchEvent{Type: sandbox.WatchRemove, Path: "/w/f"}, []pb.EventType{remove}}, {file(3, 0), written, []pb.EventType{write}}},
		"renamed, under the name": {{file(3, 0), sandbox.WatchEvent{Type: sandbox.WatchRename, From: "/w/old", Path: "/w/f"}, []pb.EventType{rename, create}}, {file(3, 0), written, []pb.EventType{write}}},
	} {
		d := &disk{files: map[string]sandbox.FileInfo{}}
		v := &viewer{filesystem: &filesystem{&Dialect{engine: d}}, t: &target{}, root: "/w"}
		for i, s := range steps {
			d.files["/w/f"] = s.now
			var got []pb.EventType
			for _, e := range v.changes(t.Context(), s.e) {
				got = append(got, e.Type)
			}
			if !slices.Equal(got, s.want) {
				t.Errorf("%s, step %d: %v, want %v", name, i, got, s.want)
			}
		}
	}
	v := &viewer{filesystem: &filesystem{&Dialect{engine: &disk{}}}, t: &target{}, root: "/w"}
	if got := v.changes(t.Context(), made); len(got) != 1 || got[0].Type != create || got[0].Name != "f" {
		t.Errorf("of what is gone again: %v", got)
	}
}
