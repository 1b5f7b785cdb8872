package e2b

import (
	"context"
	"strings"
	"time"

	pb "github.com/berth-dev/berth/dialect/e2b/envd/filesystem"
	"github.com/berth-dev/berth/sandbox"
)

// viewer puts what happens in a watched folder in these clients' words: a file that
// is made is told as made, as having got its attributes, and as written if it holds
// something. What of that the guest tells once more is left out.
type viewer struct {
	*filesystem
	t       *target
	root    string
	entries bool // tell of each entry what it is now
	fresh   fresh
}

// fresh is the files that were just made, by path, as they were then.
type fresh map[string]newFile

type newFile struct {
	made time.Time
	info sandbox.FileInfo
}

// What clients are told of.
const (
	create = pb.EventType_EVENT_TYPE_CREATE
	write  = pb.EventType_EVENT_TYPE_WRITE
	remove = pb.EventType_EVENT_TYPE_REMOVE
	rename = pb.EventType_EVENT_TYPE_RENAME
	chmod  = pb.EventType_EVENT_TYPE_CHMOD
)

const (
	freshTime = time.Second            // for which a file is just made
	bornTime  = 100 * time.Millisecond // for which it may still get its first attributes
	maxFresh  = 1024
)

// changes is an event in these clients' words: names are beneath the folder.
func (v *viewer) changes(ctx context.Context, e sandbox.WatchEvent) []*pb.FilesystemEvent {
	switch e.Type {
	case sandbox.WatchCreate:
		return v.told(ctx, e.Path, v.created(ctx, e.Path)...)
	case sandbox.WatchModify:
		if was, ok := v.fresh[e.Path]; ok && v.asWas(ctx, was) {
			return nil
		}
		return v.told(ctx, e.Path, write)
	case sandbox.WatchRemove:
		delete(v.fresh, e.Path)
		return v.told(ctx, e.Path, remove)
	case sandbox.WatchRename:
		delete(v.fresh, e.From)
		return append(v.told(ctx, e.From, rename), v.told(ctx, e.Path, create)...)
	case sandbox.WatchAttrib:
		if was, ok := v.fresh[e.Path]; ok && v.stillNew(ctx, was) {
			return nil
		}
		return v.told(ctx, e.Path, chmod)
	}
	return nil
}

// created is what is told of something new.
func (v *viewer) created(ctx context.Context, p string) []pb.EventType {
	fi, err := v.engine.Stat(ctx, v.t.id, p, false)
	if err != nil || fi.Type != sandbox.TypeFile { // it may be gone again
		return []pb.EventType{create}
	}
	if v.fresh == nil || len(v.fresh) >= maxFresh {
		v.fresh = fresh{}
	}
	v.fresh[p] = newFile{time.Now(), fi}
	if fi.Size == 0 {
		return []pb.EventType{create, chmod}
	}
	return []pb.EventType{create, chmod, write}
}

// asWas reports whether a file has not been written since it was told as made.
func (v *viewer) asWas(ctx context.Context, was newFile) bool {
	fi, err := v.engine.Stat(ctx, v.t.id, was.info.Path, false)
	return err == nil && was.info.Size > 0 && fi.Size == was.info.Size && fi.Modified.Equal(was.info.Modified)
}

// stillNew reports whether a change of a file's attributes belongs to its making.
func (v *viewer) stillNew(ctx context.Context, was newFile) bool {
	age := time.Since(was.made)
	if age < bornTime || age > freshTime {
		return age < bornTime
	}
	fi, err := v.engine.Stat(ctx, v.t.id, was.info.Path, false)
	return err == nil && fi.Mode == was.info.Mode && fi.UID == was.info.UID && fi.GID == was.info.GID
}

func (v *viewer) told(ctx context.Context, p string, kinds ...pb.EventType) (all []*pb.FilesystemEvent) {
	for _, kind := range kinds {
		e := &pb.FilesystemEvent{Name: strings.TrimPrefix(strings.TrimPrefix(p, v.root), "/"), Type: kind}
		if v.entries && kind != remove && kind != rename {
			if fi, err := v.engine.Stat(ctx, v.t.id, p, false); err == nil { // it may be gone again
				e.Entry = v.followed(ctx, v.links(v.t), fi)
			}
		}
		all = append(all, e)
	}
	return all
}
