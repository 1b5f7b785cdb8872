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
	see := &viewer{filesystem: f, t: t, root: root, entries: r.Msg.IncludeEntry}
	err = pump(ctx, w.Recv, w.Close, pingEvery(r.Header()), func(e sandbox.WatchEvent) (bool, error) {
		if e.Type == sandbox.WatchReady {
			return false, stream.Send(&pb.WatchDirResponse{Event: &pb.WatchDirResponse_Start{Start: &pb.WatchDirResponse_StartEvent{}}})
		}
		for _, one := range see.changes(ctx, e) {
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
	fresh  fresh
}

const (
	maxWatchers  = 1024
	watcherLapse = 5 * time.Minute
	drainQuiet   = 20 * time.Millisecond  // without an event, after some: there is no more
	drainWait    = 100 * time.Millisecond // for the first
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
	see := &viewer{filesystem: f, t: t, root: one.path, entries: one.options.IncludeEntry, fresh: one.fresh}
	defer func() { one.fresh = see.fresh }()
	begun := time.Now()
	err = pump(ctx, w.Recv, w.Close, drainQuiet, func(e sandbox.WatchEvent) (bool, error) {
		if e.Cursor != "" {
			one.cursor = e.Cursor
		}
		out.Events = append(out.Events, see.changes(ctx, e)...)
		return len(out.Events) >= maxDrained, nil
	}, func() error {
		if len(out.Events) == 0 && time.Since(begun) < drainWait {
			return nil
		}
		return errDrained
	})
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
