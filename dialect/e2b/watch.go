package e2b

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	pb "github.com/berth-dev/berth/dialect/e2b/envd/filesystem"
	"github.com/berth-dev/berth/sandbox"
)

// watchWindow is how long changes of one path are put together: these clients want
// each.
const watchWindow = sandbox.MinWatchWindow

// WatchDir streams what changes in a folder.
func (f *filesystem) WatchDir(ctx context.Context, r *connect.Request[pb.WatchDirRequest], stream *connect.ServerStream[pb.WatchDirResponse]) error {
	t := targetOf(ctx)
	w, root, err := f.watch(ctx, t, r.Msg.Path, r.Msg.Recursive, "")
	if err != nil {
		return f.rpcError(err)
	}
	err = pump(ctx, w.Recv, w.Close, pingEvery(r.Header()), func(e sandbox.WatchEvent) (bool, error) {
		if e.Type == sandbox.WatchReady {
			return false, stream.Send(&pb.WatchDirResponse{Event: &pb.WatchDirResponse_Start{Start: &pb.WatchDirResponse_StartEvent{}}})
		}
		for _, one := range f.changes(ctx, t, root, e, r.Msg.IncludeEntry) {
			if err := stream.Send(&pb.WatchDirResponse{Event: &pb.WatchDirResponse_Filesystem{Filesystem: one}}); err != nil {
				return false, err
			}
		}
		return false, nil
	}, func() error {
		return stream.Send(&pb.WatchDirResponse{Event: &pb.WatchDirResponse_Keepalive{Keepalive: &pb.WatchDirResponse_KeepAlive{}}})
	})
	return f.rpcError(err)
}

// watch begins to watch a folder, or goes on behind a cursor.
func (f *filesystem) watch(ctx context.Context, t *target, p string, recursive bool, cursor string) (w sandbox.Watch, root string, err error) {
	root = t.path(p)
	fi, err := f.engine.Stat(ctx, t.id, root, true)
	if err != nil {
		return nil, root, f.missing(root, err)
	}
	if fi.Type != sandbox.TypeDir {
		return nil, root, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("%w: %s", errNoDirectory, root))
	}
	w, err = f.engine.Watch(ctx, t.id, sandbox.WatchRequest{Path: root, Recursive: recursive, Window: watchWindow, Cursor: cursor})
	return w, root, err
}

// changes is an event in these clients' words: names are beneath the folder.
func (f *filesystem) changes(ctx context.Context, t *target, root string, e sandbox.WatchEvent, entries bool) []*pb.FilesystemEvent {
	one := func(kind pb.EventType, p string) *pb.FilesystemEvent {
		ev := &pb.FilesystemEvent{Name: strings.TrimPrefix(strings.TrimPrefix(p, root), "/"), Type: kind}
		if entries && kind != pb.EventType_EVENT_TYPE_REMOVE && kind != pb.EventType_EVENT_TYPE_RENAME {
			if fi, err := f.engine.Stat(ctx, t.id, p, false); err == nil { // it may be gone again
				ev.Entry = f.followed(ctx, t, fi)
			}
		}
		return ev
	}
	switch e.Type {
	case sandbox.WatchCreate:
		all := []*pb.FilesystemEvent{one(pb.EventType_EVENT_TYPE_CREATE, e.Path)}
		// What was written at once is told with the making, and these clients wait to
		// hear of it.
		if fi, err := f.engine.Stat(ctx, t.id, e.Path, false); err == nil && fi.Type == sandbox.TypeFile && fi.Size > 0 {
			all = append(all, one(pb.EventType_EVENT_TYPE_WRITE, e.Path))
		}
		return all
	case sandbox.WatchModify:
		return []*pb.FilesystemEvent{one(pb.EventType_EVENT_TYPE_WRITE, e.Path)}
	case sandbox.WatchRemove:
		return []*pb.FilesystemEvent{one(pb.EventType_EVENT_TYPE_REMOVE, e.Path)}
	case sandbox.WatchRename:
		return []*pb.FilesystemEvent{one(pb.EventType_EVENT_TYPE_RENAME, e.From), one(pb.EventType_EVENT_TYPE_CREATE, e.Path)}
	case sandbox.WatchAttrib:
		return []*pb.FilesystemEvent{one(pb.EventType_EVENT_TYPE_CHMOD, e.Path)}
	}
	return nil
}

// watchers maps the ids of watchers that are asked from time to time to where they
// are in the guest's log, which keeps what they have not read for five minutes.
type watchers struct {
	mu  sync.Mutex
	all map[string]*watcher
}

type watcher struct {
	sandbox sandbox.ID
	path    string
	options pb.CreateWatcherRequest
	used    time.Time

	mu     sync.Mutex
	cursor string
}

const (
	maxWatchers  = 1024
	watcherLapse = 5 * time.Minute
	drainQuiet   = 20 * time.Millisecond // without an event: there is no more
	maxDrained   = 10_000
)

// CreateWatcher begins a watch that is asked from time to time.
func (f *filesystem) CreateWatcher(ctx context.Context, r *connect.Request[pb.CreateWatcherRequest]) (*connect.Response[pb.CreateWatcherResponse], error) {
	t := targetOf(ctx)
	w, root, err := f.watch(ctx, t, r.Msg.Path, r.Msg.Recursive, "")
	if err != nil {
		return nil, f.rpcError(err)
	}
	defer w.Close()
	first, err := w.Recv()
	if err != nil {
		return nil, f.rpcError(err)
	}
	one := &watcher{sandbox: t.ID, path: root, used: time.Now(), cursor: first.Cursor}
	one.options.Recursive, one.options.IncludeEntry = r.Msg.Recursive, r.Msg.IncludeEntry
	id := "w" + strings.ToLower(rand.Text())
	if err := f.watchers.add(id, one); err != nil {
		return nil, f.rpcError(err)
	}
	return connect.NewResponse(&pb.CreateWatcherResponse{WatcherId: id}), nil
}

// GetWatcherEvents gives what has happened since it was last asked.
func (f *filesystem) GetWatcherEvents(ctx context.Context, r *connect.Request[pb.GetWatcherEventsRequest]) (*connect.Response[pb.GetWatcherEventsResponse], error) {
	t := targetOf(ctx)
	one := f.watchers.get(t.ID, r.Msg.WatcherId)
	if one == nil {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("watcher with id %s not found", printable(r.Msg.WatcherId)))
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	w, err := f.engine.Watch(ctx, t.id, sandbox.WatchRequest{Path: one.path, Recursive: one.options.Recursive, Window: watchWindow, Cursor: one.cursor})
	if err != nil {
		return nil, f.rpcError(err)
	}
	out := &pb.GetWatcherEventsResponse{}
	err = pump(ctx, w.Recv, w.Close, drainQuiet, func(e sandbox.WatchEvent) (bool, error) {
		if e.Cursor != "" {
			one.cursor = e.Cursor
		}
		out.Events = append(out.Events, f.changes(ctx, t, one.path, e, one.options.IncludeEntry)...)
		return len(out.Events) >= maxDrained, nil
	}, func() error { return errDrained })
	if err != nil && !errors.Is(err, errDrained) {
		return nil, f.rpcError(err)
	}
	return connect.NewResponse(out), nil
}

// errDrained ends a pump that has nothing more to give.
var errDrained = errors.New("drained")

// RemoveWatcher ends a watch.
func (f *filesystem) RemoveWatcher(ctx context.Context, r *connect.Request[pb.RemoveWatcherRequest]) (*connect.Response[pb.RemoveWatcherResponse], error) {
	if !f.watchers.remove(targetOf(ctx).ID, r.Msg.WatcherId) {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("watcher with id %s not found", printable(r.Msg.WatcherId)))
	}
	return connect.NewResponse(&pb.RemoveWatcherResponse{}), nil
}

func (s *watchers) add(id string, w *watcher) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for old, one := range s.all {
		if time.Since(one.used) > watcherLapse {
			delete(s.all, old)
		}
	}
	if len(s.all) >= maxWatchers {
		return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("%d watchers are open: remove some", maxWatchers))
	}
	if s.all == nil {
		s.all = map[string]*watcher{}
	}
	s.all[id] = w
	return nil
}

func (s *watchers) get(id sandbox.ID, name string) *watcher {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.all[name]
	if w == nil || w.sandbox != id {
		return nil
	}
	w.used = time.Now()
	return w
}

func (s *watchers) remove(id sandbox.ID, name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.all[name]
	if w == nil || w.sandbox != id {
		return false
	}
	delete(s.all, name)
	return true
}
