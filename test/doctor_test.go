package test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestDoctorLeavesNothing: a doctor that is told to end takes its sandbox with it. Of
// one that is killed the sandbox ends by itself, and the next doctor removes the rest.
func TestDoctorLeavesNothing(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: real sandboxes need root; nothing of gVisor is tested by this run")
	}
	t.Parallel() // it waits for most of its time
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			p := &practice{t: t, tmp: t.TempDir()}
			p.interrupt(s)
			if s == syscall.SIGKILL {
				p.until("the sandbox has ended", func() bool { return len(p.engines()) == 0 })
				if err := p.doctor(t.Context()).Run(); err != nil {
					t.Errorf("the next one: %v", err)
				}
			}
			if left := p.left(); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
		})
	}
}

// practice is where doctors of one test work.
type practice struct {
	t   *testing.T
	tmp string // their TMPDIR
}

func (p *practice) doctor(ctx context.Context) *exec.Cmd {
	cmd := exec.CommandContext(ctx, binary(p.t), "doctor", "--data", filepath.Join(p.tmp, "data"))
	cmd.Env = append(os.Environ(), "TMPDIR="+p.tmp)
	return cmd
}

// interrupt sends a doctor a signal while its sandbox starts, and waits for its end. One
// that was quicker does not count, nor one that was killed before there was an engine.
func (p *practice) interrupt(s syscall.Signal) {
	p.t.Helper()
	for range 50 {
		cmd := p.doctor(p.t.Context())
		if err := cmd.Start(); err != nil {
			p.t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		err, over := p.begun(ended)
		if !over {
			if err := cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
				p.t.Fatal(err)
			}
			err = <-ended
		}
		if err != nil && (s != syscall.SIGKILL || len(p.engines()) > 0) {
			return
		}
	}
	p.t.Fatal("no doctor was met while its sandbox ran")
}

// begun waits until a doctor has begun to start an engine, or is over.
func (p *practice) begun(ended <-chan error) (err error, over bool) {
	p.t.Helper()
	for {
		select {
		case err := <-ended:
			return err, true
		case <-time.After(time.Millisecond):
		}
		found, err := filepath.Glob(filepath.Join(p.tmp, "berth-doctor-*", "*", "engine", "*"))
		if err != nil {
			p.t.Fatal(err)
		}
		if len(found) > 0 {
			return nil, false
		}
	}
}

// engines are the command lines of processes of sandboxes.
func (p *practice) engines() (all []string) {
	p.t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		p.t.Fatal(err)
	}
	for _, l := range lines {
		b, err := os.ReadFile(l)
		if err != nil {
			continue // it has ended
		}
		if bytes.HasPrefix(b, []byte("runsc")) && bytes.Contains(b, []byte(p.tmp+"/")) {
			all = append(all, string(bytes.ReplaceAll(b, []byte{0}, []byte(" "))))
		}
	}
	return all
}

// left is what of the doctors is there.
func (p *practice) left() []string {
	p.t.Helper()
	all := p.engines()
	folders, err := filepath.Glob(filepath.Join(p.tmp, "berth-doctor-*"))
	if err != nil {
		p.t.Fatal(err)
	}
	return append(all, folders...)
}

func (p *practice) until(what string, is func() bool) {
	p.t.Helper()
	for end := time.Now().Add(2 * time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("never: %s; there are %q", what, p.left())
		}
	}
}
