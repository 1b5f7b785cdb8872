package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/berth-dev/berth/sandbox"
)

// stepsKept is how long, in seconds, the root after a step is kept for the next
// build.
const stepsKept = 7 * 24 * 60 * 60

// stepPrefix begins the names of snapshots of roots that builds go on from.
const stepPrefix = "build-"

// stepSnapshot is the name of the snapshot of the root after a step.
func stepSnapshot(key string) string { return stepPrefix + key[:40] }

// work makes the sandbox of a stage and does its steps in it, from the last one on
// that an earlier build has done.
func (b *building) work(ctx context.Context, s *stage) error {
	if s.box != "" {
		return nil
	}
	done, snapshot, err := b.kept(ctx, s)
	if err != nil {
		return err
	}
	b.say(sandbox.Progress{Step: "start a sandbox of " + s.base.Source})
	req := sandbox.CreateRequest{Policy: b.req.Policy, Metadata: map[string]string{"build": b.req.Name}, Lifetime: &sandbox.Lifetime{Seconds: int64(buildLife.Seconds())}}
	if req.Snapshot = snapshot; snapshot == "" {
		req.Template = s.base.Digest
	}
	box, err := b.Create(ctx, req)
	if sandbox.KindOf(err) == sandbox.NotFound && snapshot != "" { // its root, or it itself, has gone
		done, req.Snapshot, req.Template = 0, "", s.base.Digest
		box, err = b.Create(ctx, req)
	}
	if err != nil {
		return err
	}
	s.box = box.ID
	at := &stage{env: map[string]string{}, user: orElse(b.req.User, orElse(s.base.User, "root")), workdir: orElse(b.req.Workdir, s.base.Workdir)}
	maps.Copy(at.env, s.base.Env)
	for i := range s.steps {
		step := &s.steps[i]
		at.settle(step)
		if i < done {
			continue
		}
		name := fmt.Sprintf("%s (%d of %d)", b.stepName(s, i), i+1, len(s.steps))
		b.say(sandbox.Progress{Step: name, Done: int64(i), Total: int64(len(s.steps)), Unit: "steps"})
		if err := b.step(ctx, s, at, step, name); err != nil {
			return &stepError{i + 1, describe(step), fail(b.stepName(s, i), "", err)}
		}
		if step.Run != nil || i == len(s.steps)-1 {
			if err := b.keepStep(ctx, s, i); err != nil {
				return err
			}
		}
	}
	return nil
}

// kept finds how many steps of a stage need not be done, and the snapshot of the
// root after them.
func (b *building) kept(ctx context.Context, s *stage) (done int, snapshot string, err error) {
	if b.req.Force {
		return 0, "", nil
	}
	for i := len(s.steps); i > 0; i-- {
		found, err := b.GetSnapshot(ctx, stepSnapshot(s.keys[i-1]))
		switch {
		case sandbox.KindOf(err) == sandbox.NotFound:
			continue
		case err != nil:
			return 0, "", err
		}
		b.say(sandbox.Progress{Step: fmt.Sprintf("%d steps are as they were", i)})
		return i, string(found.ID), nil
	}
	return 0, "", nil
}

// keepStep keeps the root after a step. A server that keeps no snapshots does all
// steps every time.
func (b *building) keepStep(ctx context.Context, s *stage, i int) error {
	_, err := b.Snapshot(ctx, string(s.box), sandbox.SnapshotRequest{Name: stepSnapshot(s.keys[i]), Keep: sandbox.KeepDisk, TTLSeconds: stepsKept})
	switch sandbox.KindOf(err) {
	case sandbox.Unsupported, sandbox.Conflict: // another build has kept the same, or an earlier one
		return nil
	}
	return err
}

// step does one thing to the root in a stage's sandbox; at is what holds for its
// processes.
func (b *building) step(ctx context.Context, s, at *stage, step *sandbox.BuildStep, name string) error {
	switch {
	case step.Run != nil:
		return b.run(ctx, s, at, step.Run, name)
	case step.Copy != nil:
		return b.copy(ctx, s, step.Copy)
	case step.Workdir != "":
		fi, err := b.Stat(ctx, string(s.box), step.Workdir, true)
		if err == nil && fi.Type == sandbox.TypeDir {
			return nil
		}
		owner := "root"
		if b.req.User != "" { // who asks for a user is to work there as that one
			owner = at.user
		}
		_, err = b.MakeDir(ctx, string(s.box), step.Workdir, 0o755, owner, true)
		return err
	case makesUser(step):
		return b.run(ctx, s, at, &sandbox.RunStep{Argv: []string{"/bin/sh", "-c", makeUser, "sh", step.User}, User: "root"}, name)
	}
	return nil
}

// makesUser reports whether a step may make a user: two are in every root.
func makesUser(step *sandbox.BuildStep) bool {
	return step.NewUser && step.User != "root" && step.User != sandbox.DefaultUser
}

// makeUser makes the user $1 in roots of Debian's kind and of Alpine's.
const makeUser = `id -u -- "$1" >/dev/null 2>&1 && exit 0
if command -v useradd >/dev/null; then useradd -m -s /bin/sh -- "$1"; else adduser -D -- "$1"; fi || exit
if [ -x /bin/bash ] && command -v usermod >/dev/null; then usermod -s /bin/bash -- "$1"; fi
if [ -d /etc/sudoers.d ]; then (umask 0337 && printf '%s ALL=(ALL) NOPASSWD:ALL\n' "$1" >"/etc/sudoers.d/made-$1"); fi
`

func (b *building) run(ctx context.Context, s, at *stage, r *sandbox.RunStep, name string) error {
	cmd := sandbox.Command{Argv: r.Argv, User: at.user, Cwd: at.workdir, Env: map[string]string{}, Merge: true, Lossless: true}
	maps.Copy(cmd.Env, r.Env)
	maps.Copy(cmd.Env, at.env)
	if r.User != "" {
		cmd.User = r.User
	}
	if cmd.Cwd == "" {
		cmd.Cwd = "/"
	}
	events, err := b.Exec(ctx, string(s.box), cmd)
	if err != nil {
		return err
	}
	exit, last, err := drain(events, func(line string) { b.say(sandbox.Progress{Step: name, Log: line}) })
	switch {
	case err != nil:
		return err
	case exit == nil:
		return sandbox.Errorf("run", sandbox.Unavailable, "the command's end was not seen")
	case exit.Code != 0:
		return &sandbox.Error{Op: "run", Kind: sandbox.Invalid, Err: fmt.Errorf("it ended with code %d: %s", exit.Code, strings.TrimSpace(last)),
			Hint: "try the command in a sandbox of what the build begins with"}
	}
	return nil
}

var errNotReady = errors.New("it was not ready in time")
