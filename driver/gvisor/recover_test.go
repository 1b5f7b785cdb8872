package gvisor_test

import (
	"context"
	"errors"
	"testing"

	"github.com/berth-dev/berth/driver"
)

// TestRecoverWaitsForTheLink: while another holds a machine's link it is not taken up,
// whoever asks may stop waiting, and it is as soon as the link is free.
func TestRecoverWaitsForTheLink(t *testing.T) {
	dir := t.TempDir()
	before := newDriver(t, dir)
	b := create(t, before, newSpec(t))
	b.mustSh(t, "user", "echo kept > ~/file")
	after := newDriver(t, dir)

	gaveUp := errors.New("the caller gave up")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gaveUp)
	if m, err := after.Recover(ctx, b.ID(), b.State()); !errors.Is(err, gaveUp) {
		t.Fatalf("recover for one who gave up: %v, %v", m, err)
	}

	type outcome struct {
		m   driver.Machine
		err error
	}
	recovered := make(chan outcome, 1)
	go func() {
		m, err := after.Recover(t.Context(), b.ID(), b.State())
		recovered <- outcome{m, err}
	}()
	if err := before.Close(); err != nil {
		t.Error(err)
	}
	o := <-recovered
	if o.err != nil {
		t.Fatalf("recover once the link is free: %v", o.err)
	}
	if got := client(t, o.m).mustSh(t, "user", "cat ~/file"); got != "kept" {
		t.Errorf("inside: %q", got)
	}
	if err := o.m.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}
