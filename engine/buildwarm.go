package engine

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// settleTime is how long a start command may live before a template that asks
// nothing of it counts as ready.
const settleTime = 5 * time.Second

// readyPause is between two questions whether a template is ready.
const readyPause = 200 * time.Millisecond

// begin boots a sandbox of a template that has a start command, waits until it is
// ready and keeps it, with its memory: the sandboxes of the template go on from
// there. What the template of before has kept of the same serves again.
func (b *building) begin(ctx context.Context, t *sandbox.Template, before sandbox.Template) (err error) {
	cmd := sandbox.Command{Shell: b.req.Start, Name: "start", Detach: true}
	if cmd.Shell == "" {
		cmd.Argv = b.start
	}
	if cmd.Shell == "" && len(cmd.Argv) == 0 {
		return nil
	}
	ready := orElse(b.req.Ready, b.ready)
	t.Start = orElse(cmd.Shell, strings.Join(cmd.Argv, " "))
	if before.Digest == t.Digest && before.Start == t.Start && before.Snapshot != "" && reflect.DeepEqual(before.Policy, b.req.Policy) && !b.req.Force {
		if _, err := b.GetSnapshot(ctx, string(before.Snapshot)); err == nil {
			t.Snapshot, t.Account = before.Snapshot, before.Account
			return nil
		}
	}
	if _, err := b.archived(); err != nil {
		return &sandbox.Error{Op: "start", Kind: sandbox.Unsupported, Err: err, Hint: "leave start out, or start the server with a place for blobs"}
	}
	b.say(sandbox.Progress{Step: "start"})
	req := sandbox.CreateRequest{Template: t.Digest, Policy: b.req.Policy, Metadata: map[string]string{"build": b.req.Name},
		Lifetime: &sandbox.Lifetime{Seconds: int64(buildLife.Seconds())}}
	if t.Limits != nil { // what is copied has the memory that its copies have
		req.Limits = *t.Limits
	}
	box, err := b.Create(ctx, req)
	if err != nil {
		return err
	}
	b.stages = append(b.stages, &stage{box: box.ID}) // removed with the others
	p, err := b.StartProcess(ctx, string(box.ID), cmd)
	if err != nil {
		return fail("start", "", err)
	}
	if err := b.awaitReady(ctx, string(box.ID), p.ID, ready); err != nil {
		return fail("start", "", err)
	}
	b.say(sandbox.Progress{Step: "keep it with its memory"})
	kept, err := b.Snapshot(ctx, string(box.ID), sandbox.SnapshotRequest{Keep: sandbox.KeepMemory})
	if err != nil {
		return err
	}
	t.Snapshot, t.Account = kept.ID, kept.Account
	return nil
}

// awaitReady waits until a template is ready, or says why it is not.
func (b *building) awaitReady(ctx context.Context, id, process, ready string) error {
	seconds := b.req.ReadySeconds
	if seconds == 0 {
		seconds = sandbox.DefaultReady
	}
	ctx, cancel := context.WithTimeoutCause(ctx, time.Duration(seconds)*time.Second, errNotReady)
	defer cancel()
	ctx, abandon := context.WithCancelCause(ctx)
	ended, done := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(done)
		err := b.outlive(ctx, id, process)
		if ended <- err; err != nil && ctx.Err() == nil && sandbox.KindOf(err) != sandbox.Timeout {
			abandon(err) // nothing can become ready; one that ended well may have left others behind
		}
	}()
	defer func() { abandon(nil); cancel(); <-done }()
	if ready == "" {
		select {
		case err := <-ended:
			return err
		case <-time.After(settleTime):
			return nil
		}
	}
	for {
		ok, err := b.ask(ctx, id, ready)
		if ok && ctx.Err() == nil {
			return nil
		}
		// The guest is told of the deadline, and may notice it first.
		if err != nil && ctx.Err() == nil && sandbox.KindOf(err) != sandbox.Timeout {
			return err
		}
		select {
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), errNotReady) {
				return &sandbox.Error{Kind: sandbox.Timeout, Err: fmt.Errorf("%w: %d seconds: %s", errNotReady, seconds, b.said(context.WithoutCancel(ctx), id, process)),
					Hint: "ready_seconds gives it longer; ready is asked with bash"}
			}
			return context.Cause(ctx)
		case <-time.After(readyPause):
		}
	}
}

// outlive waits for the end of a start command, which is an error unless it ended
// well.
func (b *building) outlive(ctx context.Context, id, process string) error {
	exit, err := b.WaitProcess(ctx, id, process)
	if err != nil || exit.Code == 0 {
		return err
	}
	return &sandbox.Error{Kind: sandbox.Invalid, Err: fmt.Errorf("the start command ended with code %d: %s", exit.Code, b.said(ctx, id, process)),
		Hint: "try it in a sandbox of the template without a start command"}
}

// ask runs the question whether a template is ready.
func (b *building) ask(ctx context.Context, id, ready string) (bool, error) {
	events, err := b.Exec(ctx, id, sandbox.Command{Shell: ready, Merge: true})
	if err != nil {
		return false, err
	}
	exit, _, err := drain(events, func(string) {})
	return err == nil && exit != nil && exit.Code == 0, err
}

// said is the end of what a process has printed.
func (b *building) said(ctx context.Context, id, process string) string {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	events, err := b.Attach(ctx, id, process, sandbox.Offsets{})
	if err != nil {
		return ""
	}
	_, last, _ := drain(events, func(string) {}) // one that goes on is cut off
	return strings.TrimSpace(last)
}
