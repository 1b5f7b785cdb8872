package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/spf13/cobra"
)

// kvmLimit bounds the boot: a machine that cannot run guests may hang instead
// of saying so.
const kvmLimit = 5 * time.Second

// kvmVerb is the hidden verb that boots in a process of its own, which can be
// killed.
const kvmVerb = "probe-kvm"

func (p *program) kvmCommand() *cobra.Command {
	return &cobra.Command{Use: kvmVerb, Hidden: true, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return bootKVM() }}
}

// probeKVM boots a few instructions under KVM, in a process that is killed when
// they take too long.
func probeKVM(ctx context.Context) error {
	if _, err := os.Stat("/dev/kvm"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, kvmLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "doctor", kvmVerb)
	cmd.Args[0] = "berth" // "exe" is a name of the sandbox engine
	out, err := cmd.CombinedOutput()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("a guest of a few instructions did not end in %v", kvmLimit)
	case err != nil && len(out) > 0:
		return errors.New(firstLine(string(out)))
	}
	return err
}
