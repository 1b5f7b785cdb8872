package e2b

import (
	"context"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/berth-dev/berth/sandbox"
)

// factsDir holds what a program in a sandbox can read of it: the variables that what
// these clients start is given.
const factsDir = "/run/e2b"

// facts are the variables that tell a program where it runs.
func facts(id, template string) map[string]string {
	return map[string]string{"E2B_SANDBOX": "true", "E2B_SANDBOX_ID": id, "E2B_TEMPLATE_ID": template}
}

// note writes into a sandbox what it is. One without files goes without, and so does
// one whose disk is full: it is made for whoever wants to make room there.
func (d *Dialect) note(ctx context.Context, s *sandbox.Sandbox) error {
	g, ctx := errgroup.WithContext(ctx)
	for name, text := range facts(string(s.ID), aliasOf(s)) {
		g.Go(func() error {
			o := sandbox.WriteOptions{User: "0", Mode: 0o644, Parents: true}
			_, err := d.engine.WriteFile(ctx, string(s.ID), factsDir+"/."+name, o, strings.NewReader(text))
			if kind := sandbox.KindOf(err); kind == sandbox.Exhausted || kind == sandbox.Unsupported {
				return nil
			}
			return err
		})
	}
	return g.Wait()
}

// noted is a sandbox that was just made, which is not left without its notes.
func (d *Dialect) noted(ctx context.Context, s *sandbox.Sandbox) error {
	err := d.note(ctx, s)
	if err != nil {
		_ = d.engine.Remove(context.WithoutCancel(ctx), string(s.ID)) // the error that counts is the note's; its timeout ends it too
	}
	return err
}

// noteForks does so for every child of a fork.
func (d *Dialect) noteForks(ctx context.Context, children []sandbox.Forked) {
	var g errgroup.Group
	for i := range children {
		if c := &children[i]; c.Err == nil {
			g.Go(func() error {
				c.Err = d.noted(ctx, c.Sandbox)
				return nil
			})
		}
	}
	_ = g.Wait() // each child has its own error
}
