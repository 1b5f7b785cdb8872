package cloudflare

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// What commands get that ask for nothing else.
const (
	user        = "root"
	defaultDir  = "/workspace"
	fallbackDir = "/root" // of images without the other
	noSession   = "__DISABLE_SESSION__"
)

// Bounds on what one command may say to a caller who wants all of it at once.
const (
	maxOutput = 32 << 20 // bytes, each of its outputs
	maxState  = 8 << 20  // bytes, what a session's shell describes itself with
	maxInline = 96 << 10 // bytes of a state that passes as a variable; the system takes 128 KiB
)

// box is one sandbox.
type box struct {
	*Server
	id string
}

// hasState reports whether commands of a session share a shell.
func hasState(session string) bool { return session != "" && session != noSession }

// open makes a session if it is not there, and returns its name inside.
func (b *box) open(ctx context.Context, session, cwd string, env map[string]string) (name string, created bool, err error) {
	if err := checkID("session", session); err != nil {
		return "", false, err
	}
	o := sandbox.SessionOptions{Name: b.names.of(session), Env: env, Cwd: cwd, User: user, Plain: true}
	if cwd == "" {
		o.Cwd = defaultDir
	}
	_, created, err = b.engine.OpenSession(ctx, b.id, o)
	if cwd == "" && noFolder(err) {
		o.Cwd = fallbackDir
		_, created, err = b.engine.OpenSession(ctx, b.id, o)
	}
	if created {
		b.limits.set(b.limitKey(session), 0)
	}
	return o.Name, created, err
}

// close ends a session; the next one of its id is another.
func (b *box) close(ctx context.Context, session string) error {
	b.limits.set(b.limitKey(session), 0)
	return b.engine.CloseSession(ctx, b.id, b.names.of(session))
}

// noFolder reports whether something could not begin because its folder is not there.
func noFolder(err error) bool {
	return sandbox.KindOf(err) == sandbox.NotFound && strings.Contains(err.Error(), "to start in")
}

// noProgram reports whether something could not begin because its program is not
// there.
func noProgram(err error) bool {
	return sandbox.KindOf(err) == sandbox.NotFound && strings.Contains(err.Error(), "program ") && strings.HasSuffix(err.Error(), "not found")
}

// inSession runs a command in a session's shell. One that is not there is made.
func (b *box) inSession(ctx context.Context, session string, cmd sandbox.Command) (sandbox.Events, error) {
	if err := checkID("session", session); err != nil {
		return nil, err
	}
	events, err := b.engine.RunInSession(ctx, b.id, b.names.of(session), cmd)
	if err == nil {
		var first sandbox.Event
		if first, err = events.Recv(); err == nil {
			return &replay{Events: events, first: &first}, nil
		}
		_ = events.Close()
	}
	if sandbox.KindOf(err) != sandbox.NotFound {
		return nil, err
	}
	name, _, err := b.open(ctx, session, "", nil)
	if err != nil {
		return nil, err
	}
	return b.engine.RunInSession(ctx, b.id, name, cmd)
}

// replay is a stream whose first event was read already.
type replay struct {
	sandbox.Events
	first *sandbox.Event
}

func (r *replay) Recv() (sandbox.Event, error) {
	if r.first != nil {
		e := *r.first
		r.first = nil
		return e, nil
	}
	return r.Events.Recv()
}

// output is what a command that is over has said.
type output struct {
	stdout, stderr []byte
	exit           sandbox.Exit
}

// collect reads a command to its end, and no more than limit bytes of each output.
func collect(events sandbox.Events, limit int) (out output, err error) {
	defer func() {
		if cerr := events.Close(); err == nil {
			err = cerr
		}
	}()
	for {
		e, err := events.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return out, err
		case e.Exit != nil:
			out.exit = *e.Exit
			continue
		}
		to := &out.stdout
		if e.Stream == sandbox.Stderr {
			to = &out.stderr
		}
		if *to = append(*to, e.Data...); len(*to) > limit {
			return out, &fault{code: commandError, text: fmt.Sprintf("the command wrote more than %d MiB", limit>>20),
				err: &sandbox.Error{Kind: sandbox.Exhausted, Err: errors.New("too much output"), Hint: "stream it, or write it to a file"}}
		}
	}
}

// state is what makes another shell the same as a session's.
func (b *box) state(ctx context.Context, session string) (string, error) {
	events, err := b.inSession(ctx, session, sandbox.Command{Shell: describe, Lossless: true})
	if err != nil {
		return "", err
	}
	out, err := collect(events, maxState)
	switch {
	case err != nil:
		return "", err
	case out.exit.Error != "":
		return "", &fault{code: commandError, text: "the session's shell does not start: " + out.exit.Error}
	}
	return string(out.stdout), nil
}

// task is a command that runs beside its session's shell: it begins as the shell is,
// and changes nothing of it.
type task struct {
	command string
	session string
	cwd     string // "" means the session's
	env     map[string]string
	timeout time.Duration
	id      string // of the process; "" of one that has none
	detach  bool
}

// start starts a task.
func (b *box) start(ctx context.Context, t task) (sandbox.Events, error) {
	if t.command == "" {
		return nil, &fault{code: invalidCommand, text: "Command cannot be empty", context: map[string]any{"command": ""}}
	}
	if err := checkEnv(t.env); err != nil {
		return nil, err
	}
	cmd := sandbox.Command{User: user, Timeout: t.timeout, Detach: t.detach, Lossless: !t.detach}
	if t.id != "" {
		cmd.Name = b.names.of(t.id)
	}
	c := resumption{first: t.id, second: t.session, command: t.command}
	dir, err := b.folder(ctx, t.session, t.cwd)
	if err != nil {
		return nil, err
	}
	if t.cwd != "" {
		c.stay = "stay"
	}
	if hasState(t.session) {
		if err := b.describeTo(ctx, &c, t.session, t.env); err != nil {
			return nil, err
		}
	}
	cmd.Argv, cmd.Env = c.argv(), c.environ(t.env)
	return b.begin(ctx, cmd, dir)
}

// describeTo makes c go on as a session's shell is, but for the variables given.
func (b *box) describeTo(ctx context.Context, c *resumption, session string, env map[string]string) (err error) {
	if c.state, err = b.state(ctx, session); err != nil {
		return err
	}
	for name, value := range env {
		c.state += "\nbuiltin export " + name + "=" + quote(value)
	}
	if len(c.state) > maxInline {
		c.file = "file"
		c.state, err = b.keep(ctx, c.state)
	}
	return err
}

// begin starts a program in a folder; one that asks for none gets the first that is
// there.
func (b *box) begin(ctx context.Context, cmd sandbox.Command, dir string) (sandbox.Events, error) {
	cmd.Cwd = dir
	if dir == "" {
		cmd.Cwd = defaultDir
	}
	events, err := b.engine.Exec(ctx, b.id, cmd)
	if dir == "" && noFolder(err) {
		cmd.Cwd = fallbackDir
		events, err = b.engine.Exec(ctx, b.id, cmd)
	}
	return events, err
}

// keep puts a state that is too long for a variable into a file, which its reader
// removes.
func (b *box) keep(ctx context.Context, state string) (string, error) {
	p := "/tmp/.cf-" + strings.ToLower(rand.Text())
	_, err := b.engine.WriteFile(ctx, b.id, p, sandbox.WriteOptions{User: user, Mode: 0o600}, strings.NewReader(state))
	return p, err
}

// folder resolves the folder of one call; "" stays so.
func (b *box) folder(ctx context.Context, session, cwd string) (string, error) {
	if cwd == "" {
		return "", nil
	}
	return b.resolve(ctx, session, cwd)
}

// resolve makes a path whole: a relative one begins at the session's folder.
func (b *box) resolve(ctx context.Context, session, p string) (string, error) {
	switch {
	case p == "":
		return "", invalid("the path is empty")
	case strings.ContainsRune(p, 0):
		return "", invalid("the path holds a NUL byte")
	case len(p) > sandbox.MaxPathBytes:
		return "", invalid(fmt.Sprintf("the path has more than %d bytes", sandbox.MaxPathBytes))
	case p[0] == '/':
		return path.Clean(p), nil
	}
	base := defaultDir
	if hasState(session) {
		name := b.names.of(session)
		all, err := b.engine.Sessions(ctx, b.id)
		if err != nil {
			return "", err
		}
		for _, s := range all {
			if s.Name == name {
				base = s.Cwd
			}
		}
	}
	return path.Join(base, p), nil
}

// trimmed is an output as these clients get it when it is whole.
func trimmed(b []byte) string {
	return strings.ToValidUTF8(string(bytes.TrimRight(b, "\r\n")), "\uFFFD")
}
