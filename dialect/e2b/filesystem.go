package e2b

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/berth-dev/berth/dialect/e2b/envd/filesystem"
	"github.com/berth-dev/berth/sandbox"
)

// filesystem is the service filesystem.Filesystem of a sandbox's guest port.
type filesystem struct{ *Dialect }

// Stat describes an entry.
func (f *filesystem) Stat(ctx context.Context, r *connect.Request[pb.StatRequest]) (*connect.Response[pb.StatResponse], error) {
	t := targetOf(ctx)
	e, err := f.entry(ctx, t, t.path(r.Msg.Path))
	if err != nil {
		return nil, f.rpcError(err)
	}
	return connect.NewResponse(&pb.StatResponse{Entry: e}), nil
}

// MakeDir makes a folder, and those above it.
func (f *filesystem) MakeDir(ctx context.Context, r *connect.Request[pb.MakeDirRequest]) (*connect.Response[pb.MakeDirResponse], error) {
	t := targetOf(ctx)
	p := t.path(r.Msg.Path)
	if fi, err := f.engine.Stat(ctx, t.id, p, true); err == nil {
		if fi.Type == sandbox.TypeDir {
			return nil, connect.NewError(connect.CodeAlreadyExists, fmt.Errorf("directory already exists: %s", p))
		}
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("path already exists but it is not a directory: %s", p))
	}
	fi, err := f.engine.MakeDir(ctx, t.id, p, 0o755, t.user, true)
	if err != nil {
		return nil, f.rpcError(t.userError(err))
	}
	return connect.NewResponse(&pb.MakeDirResponse{Entry: entryOf(fi)}), nil
}

// Move renames an entry, making the folders above its new place.
func (f *filesystem) Move(ctx context.Context, r *connect.Request[pb.MoveRequest]) (*connect.Response[pb.MoveResponse], error) {
	t := targetOf(ctx)
	from, to := t.path(r.Msg.Source), t.path(r.Msg.Destination)
	err := f.engine.Move(ctx, t.id, from, to, true)
	if sandbox.KindOf(err) == sandbox.NotFound {
		if _, err := f.engine.Stat(ctx, t.id, from, false); err != nil {
			return nil, f.rpcError(f.missing(from, err))
		}
		if _, err := f.engine.MakeDir(ctx, t.id, path.Dir(to), 0o755, t.user, true); err != nil {
			return nil, f.rpcError(t.userError(err))
		}
		err = f.engine.Move(ctx, t.id, from, to, true)
	}
	if err != nil {
		return nil, f.rpcError(err)
	}
	e, err := f.entry(ctx, t, to)
	if err != nil {
		return nil, f.rpcError(err)
	}
	return connect.NewResponse(&pb.MoveResponse{Entry: e}), nil
}

// dirPage is how many entries are asked for at once.
const dirPage = 10_000

// maxEntries bounds one list.
const maxEntries = 1_000_000

// ListDir lists a folder, depth levels of it.
func (f *filesystem) ListDir(ctx context.Context, r *connect.Request[pb.ListDirRequest]) (*connect.Response[pb.ListDirResponse], error) {
	t := targetOf(ctx)
	p := t.path(r.Msg.Path)
	fi, err := f.engine.Stat(ctx, t.id, p, true)
	if err != nil {
		return nil, f.rpcError(f.missing(p, err))
	}
	if fi.Type != sandbox.TypeDir {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("path is not a directory: %s", p))
	}
	out, leads := &pb.ListDirResponse{}, f.links(t)
	depth := max(1, int(min(r.Msg.Depth, 1024)))
	for after, more := "", true; more; {
		var all []sandbox.FileInfo
		if all, more, err = f.engine.ListDir(ctx, t.id, p, depth, dirPage, after); err != nil {
			return nil, f.rpcError(err)
		}
		if len(out.Entries)+len(all) > maxEntries {
			return nil, connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("more than %d entries: list with a smaller depth", maxEntries))
		}
		for _, fi := range all {
			e := f.followed(ctx, leads, fi)
			if fi.Attributed {
				if err := f.attribute(ctx, t, e); err != nil {
					return nil, f.rpcError(err)
				}
			}
			out.Entries = append(out.Entries, e)
			after = fi.Path
		}
	}
	return connect.NewResponse(out), nil
}

// Remove removes an entry with all beneath it; what is not there is removed.
func (f *filesystem) Remove(ctx context.Context, r *connect.Request[pb.RemoveRequest]) (*connect.Response[pb.RemoveResponse], error) {
	t := targetOf(ctx)
	if err := f.engine.RemoveFile(ctx, t.id, t.path(r.Msg.Path), true); err != nil && sandbox.KindOf(err) != sandbox.NotFound {
		return nil, f.rpcError(err)
	}
	return connect.NewResponse(&pb.RemoveResponse{}), nil
}

// missing puts a path that is not there in these clients' words.
func (f *filesystem) missing(p string, err error) error {
	if sandbox.KindOf(err) == sandbox.NotFound {
		return connect.NewError(connect.CodeNotFound, fmt.Errorf("path not found: %s", p))
	}
	return err
}

// entry describes what is at a path, with its metadata.
func (f *filesystem) entry(ctx context.Context, t *target, p string) (*pb.EntryInfo, error) {
	fi, err := f.engine.Stat(ctx, t.id, p, false)
	if err != nil {
		return nil, f.missing(p, err)
	}
	e := f.followed(ctx, f.links(t), fi)
	if fi.Type == sandbox.TypeFile || fi.Type == sandbox.TypeDir {
		err = f.attribute(ctx, t, e)
	}
	return e, err
}

// attribute adds the metadata that an entry has, if it is there still.
func (f *filesystem) attribute(ctx context.Context, t *target, e *pb.EntryInfo) error {
	all, err := f.engine.FileAttributes(ctx, t.id, e.Path)
	if err != nil && sandbox.KindOf(err) != sandbox.Unsupported && sandbox.KindOf(err) != sandbox.NotFound {
		return err
	}
	e.Metadata = metadataOf(all)
	return nil
}

// followed is an entry as these clients see it: of a link, type and mode are those
// of what it leads to.
func (f *filesystem) followed(ctx context.Context, l *links, fi sandbox.FileInfo) *pb.EntryInfo {
	e := entryOf(fi)
	if fi.Type != sandbox.TypeSymlink {
		return e
	}
	to := targetPath(fi)
	if end, err := l.end(ctx, to); err == nil { // a link may lead nowhere
		to, e.Type, e.Mode = end.path, typeOf(end.info.Type), end.info.Mode&0o777
	}
	e.SymlinkTarget = &to
	return e
}

func entryOf(fi sandbox.FileInfo) *pb.EntryInfo {
	e := &pb.EntryInfo{Name: fi.Name, Path: fi.Path, Type: typeOf(fi.Type), Size: fi.Size, Mode: fi.Mode & 0o777,
		Permissions: permissions(fi), Owner: fi.Owner, Group: fi.Group, ModifiedTime: timestamppb.New(fi.Modified)}
	if e.Owner == "" {
		e.Owner = fmt.Sprint(fi.UID)
	}
	if e.Group == "" {
		e.Group = fmt.Sprint(fi.GID)
	}
	return e
}

func typeOf(t sandbox.FileType) pb.FileType {
	switch t {
	case sandbox.TypeFile:
		return pb.FileType_FILE_TYPE_FILE
	case sandbox.TypeDir:
		return pb.FileType_FILE_TYPE_DIRECTORY
	case sandbox.TypeSymlink:
		return pb.FileType_FILE_TYPE_SYMLINK
	}
	return pb.FileType_FILE_TYPE_UNSPECIFIED
}

// permissions is a mode as Go writes it: "-rw-r--r--", "drwxr-xr-x".
func permissions(fi sandbox.FileInfo) string {
	m := fs.FileMode(fi.Mode & 0o777)
	for _, b := range []struct {
		bit  uint32
		mode fs.FileMode
	}{{0o4000, fs.ModeSetuid}, {0o2000, fs.ModeSetgid}, {0o1000, fs.ModeSticky}} {
		if fi.Mode&b.bit != 0 {
			m |= b.mode
		}
	}
	switch fi.Type {
	case sandbox.TypeDir:
		m |= fs.ModeDir
	case sandbox.TypeSymlink:
		m |= fs.ModeSymlink
	case sandbox.TypeOther:
		m |= fs.ModeIrregular
	}
	return m.String()
}

// attributePrefix is where metadata of files stands among their attributes.
const attributePrefix = "e2b."

func metadataOf(all sandbox.Attributes) map[string]string {
	var out map[string]string
	for name, value := range all {
		key, ok := strings.CutPrefix(name, attributePrefix)
		if !ok {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[key] = strings.ToValidUTF8(string(value), "\uFFFD")
	}
	return out
}

var errNoDirectory = errors.New("path is not a directory")
