package guest

import (
	"context"
	"net"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/berth-dev/berth/guestapi"
	guestv1 "github.com/berth-dev/berth/guestapi/v1"
)

// maxHold bounds how long commands outlive broken streams.
const maxHold = 10 * time.Minute

// identity is who the guest is, and what becomes of commands whose streams break
// while its memory is copied.
type identity struct {
	mu   sync.Mutex
	id   string
	held *hold // nil: none
}

// hold is a time in which broken streams end no command.
type hold struct {
	over  chan struct{} // closed at its end
	timer *time.Timer
}

// sandboxID is the present one.
func (i *identity) sandboxID() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.id
}

// hold ends the present hold and begins another, unless it lasts no time.
func (i *identity) hold(d time.Duration) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.endHold()
	if d <= 0 {
		return
	}
	h := &hold{over: make(chan struct{})}
	h.timer = time.AfterFunc(d, func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.held == h {
			i.endHold()
		}
	})
	i.held = h
}

// endHold is called with the lock held.
func (i *identity) endHold() {
	if i.held == nil {
		return
	}
	i.held.timer.Stop()
	close(i.held.over)
	i.held = nil
}

// wait returns at the end of the hold, at once if there is none.
func (i *identity) wait() {
	i.mu.Lock()
	h := i.held
	i.mu.Unlock()
	if h != nil {
		<-h.over // it has a timer
	}
}

// part ends a command whose stream has ended, unless it is to outlive that.
func (g *Guest) part(p *process) {
	if p.detach {
		return
	}
	select {
	case <-p.done:
		return
	default:
	}
	g.self.wait()
	if !p.loose.Load() {
		p.kill()
	}
}

// loosen lets all that runs outlive its stream.
func (g *Guest) loosen() {
	g.procs.loosen()
	for _, r := range g.kernels.Live() {
		r.Loosen()
	}
}

// loosen lets every command outlive its stream.
func (t *table) loosen() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.live {
		if p != nil {
			p.loose.Store(true)
		}
	}
}

// connKey is the context's key of the connection that a request came on.
type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// identityService answers the calls of guestv1.Identity.
type identityService struct{ *Guest }

func (s *identityService) Hold(_ context.Context, r *connect.Request[guestv1.HoldRequest]) (*connect.Response[guestv1.HoldResponse], error) {
	d := time.Duration(r.Msg.Ms) * time.Millisecond
	if r.Msg.Ms < 0 || d > maxHold || d < 0 {
		return nil, refuse(invalid, "", "a hold of %d ms lies outside of 0 to %d", r.Msg.Ms, maxHold.Milliseconds())
	}
	if r.Msg.Loosen {
		s.loosen()
	}
	s.self.hold(d)
	return answer(&guestv1.HoldResponse{}, nil)
}

func (s *identityService) Identify(ctx context.Context, r *connect.Request[guestv1.IdentifyRequest]) (*connect.Response[guestv1.IdentifyResponse], error) {
	if r.Msg.SandboxId == "" || len(r.Msg.Secret) != guestapi.SecretLen {
		return nil, refuse(invalid, "", "an id and %d bytes of secret are needed", guestapi.SecretLen)
	}
	if s.config.Rename != nil {
		if err := s.config.Rename(r.Msg.SandboxId, r.Msg.Hostname); err != nil {
			return nil, fromOS(err)
		}
	}
	if n := r.Msg.FuseMounts; n < 0 || n > guestapi.MaxFuseMounts {
		return nil, refuse(invalid, "", "%d FUSE mounts lie outside of 0 to %d", n, guestapi.MaxFuseMounts)
	}
	if err := s.mounts.Allow(int(r.Msg.FuseMounts)); err != nil {
		return nil, fromOS(err)
	}
	s.self.mu.Lock()
	s.self.id = r.Msg.SandboxId
	s.self.mu.Unlock()
	// In this order: a stream that the door breaks finds its command loose.
	s.loosen()
	s.self.hold(0)
	own, _ := ctx.Value(connKey{}).(net.Conn)
	s.entrance.change(guestapi.Secret(r.Msg.Secret), own)
	return answer(&guestv1.IdentifyResponse{}, nil)
}
