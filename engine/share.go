package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/berth-dev/berth/pass"
	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

// publicPrefix + id/port: that anybody may reach the port. What is not public has
// no such key, whether it is there or not.
const publicPrefix = "public/"

func publicKey(id sandbox.ID, port int) string { return fmt.Sprintf("%s%s/%d", publicPrefix, id, port) }

// share is what the owner of a sandbox has said about one of its ports.
type share struct {
	Public     bool      `json:"public,omitempty"`
	Until      time.Time `json:"until,omitzero"` // of being public; zero: no end
	Generation uint32    `json:"generation,omitempty"`
	HostHeader string    `json:"host_header,omitempty"`
}

// isPublic reports whether anybody may come now.
func (s share) isPublic(now time.Time) bool {
	return s.Public && (s.Until.IsZero() || now.Before(s.Until))
}

// Share gives a way to a port of a sandbox from outside, after it has changed who
// may come, if that is asked for: a change acts on the next request, and on those
// under way before Share returns. It wakes nothing.
//
// Exhausted: too many of the sandbox's ports are shared in a way of their own.
func (e *Engine) Share(ctx context.Context, id string, port int, r sandbox.ShareRequest) (sandbox.Share, error) {
	const op = "share port"
	if err := errors.Join(checkPort(port), r.Check()); err != nil {
		return sandbox.Share{}, fail(op, "", err)
	}
	done, err := e.task()
	if err != nil {
		return sandbox.Share{}, fail(op, "", err)
	}
	defer done()
	sid, err := e.resolve(ctx, id)
	if err != nil {
		return sandbox.Share{}, fail(op, "", err)
	}
	unlock, err := e.sandboxes.Lock(ctx, string(sid))
	if err != nil {
		return sandbox.Share{}, fail(op, sid, err)
	}
	defer unlock()
	s, err := e.loadMended(ctx, sid)
	if err == nil {
		err = e.share(ctx, s, port, &r)
	}
	if err != nil {
		return sandbox.Share{}, fail(op, sid, err)
	}
	given, err := e.shared(s, port, &r)
	return given, fail(op, sid, err)
}

// share changes who may come, if the request says so.
func (e *Engine) share(ctx context.Context, s *stored, port int, r *sandbox.ShareRequest) error {
	if !s.living() {
		return notRunning(s)
	}
	was := s.Shares[port]
	now := was
	if r.Public != nil {
		now.Public, now.Until = *r.Public, time.Time{}
		if *r.Public && r.TTLSeconds > 0 {
			now.Until = e.now().UTC().Round(0).Add(time.Duration(r.TTLSeconds) * time.Second)
		}
	}
	if r.Revoke {
		now.Generation++
	}
	if r.HostHeader != nil {
		now.HostHeader = *r.HostHeader
	}
	if now == was {
		return nil
	}
	if _, ok := s.Shares[port]; !ok && len(s.Shares) >= sandbox.MaxSharedPorts {
		return &sandbox.Error{Kind: sandbox.Exhausted, Err: fmt.Errorf("%d of its ports are shared in a way of their own", len(s.Shares)),
			Hint: "let one server pass requests on to others"}
	}
	changed := *s
	changed.Shares = maps.Clone(s.Shares)
	if changed.Shares == nil {
		changed.Shares = map[int]share{}
	}
	changed.Shares[port] = now
	mark, err := publicMark(s.ID, port, now)
	if err != nil {
		return err
	}
	err = e.commit(ctx, s, &changed, sandbox.ChangeUpdated, mark)
	e.shareWatch.tell(s.ID, port) // after an error too: its outcome may be unknown
	return err
}

// publicMark is the key that says that a port is public, set or removed.
func publicMark(id sandbox.ID, port int, s share) (record.Op, error) {
	o := record.Op{Key: publicKey(id, port), Delete: !s.Public}
	if !s.Public {
		return o, nil
	}
	value, err := json.Marshal(s)
	if err != nil {
		return o, sandbox.Errorf("encode share", sandbox.Internal, "%w", err)
	}
	o.Value = value
	return o, nil
}

// shared says how the port is reached now, with a token unless it is public.
func (e *Engine) shared(s *stored, port int, r *sandbox.ShareRequest) (sandbox.Share, error) {
	is := s.Shares[port]
	given := sandbox.Share{Sandbox: s.ID, Port: port, HostHeader: is.HostHeader}
	if is.isPublic(e.now()) {
		given.Public, given.PublicUntil = true, is.Until
		return given, nil
	}
	life := sandbox.DefaultShareTTL
	if r.TTLSeconds > 0 {
		life = time.Duration(r.TTLSeconds) * time.Second
	}
	kind := pass.Token
	if r.Once {
		kind = pass.Once
	}
	given.Expires = e.now().Add(life).Truncate(time.Second).UTC()
	var err error
	given.Token, err = e.passes.Sign(pass.Claims{Kind: kind, Sandbox: s.ID, Port: uint16(port), Generation: is.Generation, Expires: given.Expires})
	return given, err
}
