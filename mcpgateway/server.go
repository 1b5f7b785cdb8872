package mcpgateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	firstPause   = time.Second      // from the end of a server to its next start; doubled each time
	longestPause = time.Minute      // at most, and the life after which it is the first one again
	startLimit   = 2 * time.Minute  // for a server that is started again, until it has told what it has
	patience     = 20 * time.Second // how long a call waits for a server that is being started again

	// spoken is the newest version of the protocol that begins with a handshake, which
	// every server over standard input and output knows. A newer one is asked for by a
	// question that some of them never answer.
	spoken = "2025-11-25"
)

// server is one child, and the next one after it.
type server struct {
	plan  plan
	place *Place
	tell  func(*offer) // is called with what the child has, each time it may have changed
	relay relay
	over  <-chan struct{} // closed when there is no next child

	mu      sync.Mutex
	session *mcp.ClientSession // of the child that runs now; nil: none does
	changed chan struct{}      // closed when session changes
}

func newServer(p plan, place *Place, tell func(*offer), over <-chan struct{}) *server {
	return &server{plan: p, place: place, tell: tell, over: over, changed: make(chan struct{})}
}

// live runs the child, and the next, until ctx ends. first hears how its first start
// went; after one that failed there is no other.
func (s *server) live(ctx context.Context, first func(error)) {
	// A child gets a signal when the thread that started it ends: it must not before
	// this does.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := s.place.ready(ctx, &s.plan); err != nil {
		first(err)
		return
	}
	pause := firstPause
	for up := false; ; {
		start := time.Now()
		err := s.once(ctx, func() {
			if !up {
				up = true
				first(nil)
			}
		})
		if !up {
			first(err)
			return
		}
		if ctx.Err() != nil {
			return
		}
		if time.Since(start) > longestPause {
			pause = firstPause
		}
		say(s.place.Log, s.plan.name, "%v; it is started again in %v", err, pause)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, longestPause)
	}
}

// child is one process and the connection to it.
type child struct {
	cmd    *exec.Cmd
	out    *os.File // the end of its standard output that is read
	in     io.WriteCloser
	stderr *lineLog
}

// begin starts the process.
func (s *server) begin(ctx context.Context) (*child, error) {
	env := make([]string, len(s.plan.env))
	for i, v := range s.plan.env {
		env[i] = strings.ReplaceAll(v, "{home}", s.place.home())
	}
	c := &child{stderr: &lineLog{to: s.place.Log, name: s.plan.name}}
	c.cmd = s.place.command(ctx, true, s.plan.dir, env, s.plan.argv)
	c.cmd.Cancel = func() error { return syscall.Kill(-c.cmd.Process.Pid, syscall.SIGTERM) }
	c.cmd.Stderr = c.stderr
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	c.out, c.cmd.Stdout = r, w
	if c.in, err = c.cmd.StdinPipe(); err == nil {
		err = c.cmd.Start()
	}
	if err := errors.Join(err, w.Close()); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return c, nil
}

// wait waits for the process, and ends what it has left behind.
func (c *child) wait() error {
	err := c.cmd.Wait()
	syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL) // none is left, as a rule
	if err == nil {
		return errors.New("it ended")
	}
	return fmt.Errorf("it ended: %w", err)
}

// once runs one child to its end, which it tells. up is called once what it has is told.
func (s *server) once(ctx context.Context, up func()) error {
	life, end := context.WithCancelCause(ctx)
	defer end(nil)
	c, err := s.begin(life)
	if err != nil {
		return fmt.Errorf("start it: %w", err)
	}
	var left sync.WaitGroup
	left.Go(func() {
		end(c.wait())
		c.out.SetReadDeadline(time.Now().Add(killDelay)) // what it has said is still heard
	})
	defer c.out.Close()
	defer left.Wait()
	defer end(nil)
	relist := make(chan struct{}, 1)
	session, err := s.connect(life, c, relist)
	if err != nil {
		return s.early(life, end, &left, c, err)
	}
	left.Go(func() {
		session.Wait()
		s.set(nil) // calls wait from now on
		select {
		case <-life.Done():
		case <-time.After(killDelay): // most that close their output end, and say more by that
			end(errors.New("it closed its output"))
		}
		session.Close()
	})
	for first := true; ; first = false {
		o, err := s.list(life, session)
		if err != nil {
			return s.early(life, end, &left, c, fmt.Errorf("ask what it has: %w", err))
		}
		s.tell(o)
		if first {
			s.set(session)
			up()
		}
		select {
		case <-life.Done():
			return s.because(life, c)
		case <-relist:
		}
	}
}

// early is the end of a child that was not yet of use.
func (s *server) early(life context.Context, end context.CancelCauseFunc, left *sync.WaitGroup, c *child, err error) error {
	select { // one that has ended says more by that
	case <-life.Done():
	case <-time.After(200 * time.Millisecond):
		end(err)
	}
	left.Wait()
	return s.because(life, c)
}

// because is why a life ended, with the last words of the child.
func (s *server) because(life context.Context, c *child) error {
	err := context.Cause(life)
	if said := c.stderr.last(); said != "" && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("%w: %s", err, said)
	}
	return err
}

// connect shakes hands with the child.
func (s *server) connect(ctx context.Context, c *child, relist chan<- struct{}) (*mcp.ClientSession, error) {
	again := func() {
		select {
		case relist <- struct{}{}:
		default: // it is to be done anyway
		}
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "mcp-gateway", Version: "1"}, &mcp.ClientOptions{
		Capabilities:                &mcp.ClientCapabilities{},
		ToolListChangedHandler:      func(context.Context, *mcp.ToolListChangedRequest) { again() },
		PromptListChangedHandler:    func(context.Context, *mcp.PromptListChangedRequest) { again() },
		ResourceListChangedHandler:  func(context.Context, *mcp.ResourceListChangedRequest) { again() },
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { s.relay.pass(r.Params) },
	})
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	return client.Connect(ctx, &mcp.IOTransport{
		Reader:        io.NopCloser(newMessages(c.out, &lineLog{to: s.place.Log, name: s.plan.name})),
		Writer:        c.in,
		MaxLineLength: maxMessage,
	}, &mcp.ClientSessionOptions{ProtocolVersion: spoken})
}

// set says which session calls go to.
func (s *server) set(session *mcp.ClientSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.session = session
	close(s.changed)
	s.changed = make(chan struct{})
}

// current is the session that calls go to. One that is being started again is waited
// for.
func (s *server) current(ctx context.Context) (*mcp.ClientSession, error) {
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		s.mu.Lock()
		session, changed := s.session, s.changed
		s.mu.Unlock()
		if session != nil {
			return session, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-limit.C:
			return nil, fmt.Errorf("server %s does not run: it is started again; the gateway's log says why it ended", s.plan.name)
		case <-s.over:
			return nil, errors.New("the gateway ends")
		case <-changed:
		}
	}
}
