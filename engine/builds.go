package engine

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/berth-dev/berth/sandbox"
)

// Bounds on builds that go on by themselves.
const (
	maxBuilds     = 4      // at once; more wait
	keptBuilds    = 256    // that have ended
	maxBuildLines = 20_000 // of one
)

// builds are those that nobody waits for. What is known of them is lost with the
// server: the templates are not.
type builds struct {
	turn chan struct{} // full while as many run as may

	mu    sync.Mutex
	all   map[string]*construction // by account and id
	ended []string                 // the oldest first
}

// construction is one of them.
type construction struct {
	cancel context.CancelCauseFunc

	mu    sync.Mutex
	build sandbox.Build
	lines []sandbox.BuildLine
}

func newBuilds() *builds {
	return &builds{turn: make(chan struct{}, maxBuilds), all: map[string]*construction{}}
}

var buildID = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,63}$`)

// errBuildEnded is the cause of a build that was asked to end.
var errBuildEnded = &sandbox.Error{Kind: sandbox.Conflict, Err: errors.New("the build was cancelled")}

// StartBuild begins to build a template, under an id that is the caller's choice,
// or one that is drawn for "". The build goes on when ctx ends.
//
// Conflict: a build of the account has the id.
func (e *Engine) StartBuild(ctx context.Context, id string, req sandbox.BuildRequest) (sandbox.Build, error) {
	const op = "start build"
	if err := operatorOnly(ctx); err != nil {
		return sandbox.Build{}, fail(op, "", err)
	}
	c, err := sandbox.CallerOf(ctx)
	if err != nil {
		return sandbox.Build{}, fail(op, "", err)
	}
	if err := req.Check(); err != nil {
		return sandbox.Build{}, fail(op, "", err)
	}
	if id == "" {
		id = string(sandbox.NewID())
	}
	if !buildID.MatchString(id) {
		return sandbox.Build{}, fail(op, "", sandbox.Errorf("check build", sandbox.Invalid, "%.80q is not an id of a build", id))
	}
	done, err := e.task()
	if err != nil {
		return sandbox.Build{}, fail(op, "", err)
	}
	work, cancel := context.WithCancelCause(withBuildID(sandbox.WithCaller(e.ctx, c), id))
	r := &construction{cancel: cancel, build: sandbox.Build{ID: id, Account: c.Account, Name: req.Name, State: sandbox.BuildWaiting, Started: e.now().UTC().Round(0)}}
	if err := e.background.add(r); err != nil {
		cancel(nil)
		done()
		return sandbox.Build{}, fail(op, "", err)
	}
	go func() {
		defer done()
		defer cancel(nil)
		e.runBuild(work, r, req)
	}()
	return r.build, nil
}

func (e *Engine) runBuild(ctx context.Context, r *construction, req sandbox.BuildRequest) {
	defer e.background.retire(r)
	select {
	case e.background.turn <- struct{}{}:
		defer func() { <-e.background.turn }()
	case <-ctx.Done():
		r.end(e, sandbox.Template{}, context.Cause(ctx))
		return
	}
	r.mu.Lock()
	r.build.State = sandbox.BuildRunning
	r.mu.Unlock()
	t, err := e.BuildTemplate(ctx, req, func(p sandbox.Progress) { r.say(e, p) })
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	r.end(e, t, err)
}

func (r *construction) say(e *Engine, p sandbox.Progress) {
	text := p.Log
	if text == "" {
		if p.Unit != "" && p.Unit != "steps" {
			return // how far it is, many times a second
		}
		text = p.Step
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.lines) < maxBuildLines {
		r.lines = append(r.lines, sandbox.BuildLine{Time: e.now().UTC(), Step: p.Step, Text: text, Output: p.Log != ""})
	}
}

func (r *construction) end(e *Engine, t sandbox.Template, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.build.State, r.build.Ended = sandbox.BuildReady, e.now().UTC().Round(0)
	if err != nil {
		r.build.State, r.build.Error, r.build.Hint = sandbox.BuildFailed, err.Error(), sandbox.HintOf(err)
		var at *stepError
		if errors.As(err, &at) {
			r.build.FailedStep, r.build.FailedText, r.build.Error = at.step, at.text, at.cause().Error()
		}
		var start *startError
		if errors.As(err, &start) {
			r.build.FailedText = "start"
		}
		if sandbox.KindOf(err) == sandbox.Internal {
			e.log.Error("build a template", "build", r.build.ID, "error", err)
			r.build.Error = "internal error"
		}
		return
	}
	r.build.Template = &t
}

// stepError says at which step, from 1, a build failed.
type stepError struct {
	step int
	text string // what it is called
	err  error
}

func (s *stepError) Error() string { return s.err.Error() }
func (s *stepError) Unwrap() error { return s.err }

// startError says that what a template starts did not start, or was not ready.
type startError struct{ err error }

func (s *startError) Error() string { return s.err.Error() }
func (s *startError) Unwrap() error { return s.err }

// cause is the error without the words that tell the step.
func (s *stepError) cause() error {
	var named *sandbox.Error
	if errors.As(s.err, &named) && named.Err != nil {
		return named.Err
	}
	return s.err
}

// GetBuild tells how a build of the account goes, with the lines that came after
// the first so many.
func (e *Engine) GetBuild(ctx context.Context, id string, after int) (sandbox.Build, error) {
	const op = "get build"
	r, err := e.buildOf(ctx, id)
	if err != nil {
		return sandbox.Build{}, fail(op, "", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.build
	out.Lines = append([]sandbox.BuildLine{}, r.lines[max(0, min(after, len(r.lines))):]...)
	out.Next = len(r.lines)
	return out, nil
}

// CancelBuild ends a build. One that has ended stays as it is.
func (e *Engine) CancelBuild(ctx context.Context, id string) error {
	r, err := e.buildOf(ctx, id)
	if err != nil {
		return fail("cancel build", "", err)
	}
	r.cancel(errBuildEnded)
	return nil
}

func (e *Engine) buildOf(ctx context.Context, id string) (*construction, error) {
	c, err := sandbox.CallerOf(ctx)
	if err != nil {
		return nil, err
	}
	e.background.mu.Lock()
	defer e.background.mu.Unlock()
	if r := e.background.all[c.Account+"/"+strings.ToLower(id)]; r != nil {
		return r, nil
	}
	return nil, &sandbox.Error{Kind: sandbox.NotFound, Err: fmt.Errorf("no build %.80q", id), Hint: "builds are known until the server starts anew; templates stay"}
}

func (b *builds) add(r *construction) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := r.build.Account + "/" + r.build.ID
	if b.all[key] != nil {
		return &sandbox.Error{Kind: sandbox.Conflict, Err: fmt.Errorf("a build has the id %s", r.build.ID), Hint: "choose another id, or leave it out"}
	}
	if len(b.all)-len(b.ended) >= keptBuilds {
		return &sandbox.Error{Kind: sandbox.Exhausted, Err: fmt.Errorf("%d builds wait or run", keptBuilds), Hint: "try again when some have ended"}
	}
	b.all[key] = r
	return nil
}

// retire remembers that a build has ended, and forgets the oldest.
func (b *builds) retire(r *construction) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = append(b.ended, r.build.Account+"/"+r.build.ID)
	for len(b.ended) > keptBuilds {
		delete(b.all, b.ended[0])
		b.ended = b.ended[1:]
	}
}
