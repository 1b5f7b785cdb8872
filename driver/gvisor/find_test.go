package gvisor_test

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/driver/gvisor"
	"github.com/berth-dev/berth/sandbox"
)

// The environment of a process that is to be killed in the midst of a verb.
const (
	victimVerb = "BERTH_TEST_VICTIM" // pause, resume, resume in a shell, fork, capture, or one of savedVerbs
	victimDir  = "BERTH_TEST_VICTIM_DIR"
	victimID   = "BERTH_TEST_VICTIM_ID"
)

// TestVictim is not a test: it is the process that TestFindAfterAKill kills.
func TestVictim(t *testing.T) {
	verb := os.Getenv(victimVerb)
	if verb == "" {
		t.Skip("it runs on behalf of another test")
	}
	c := gvisor.Config{Dir: os.Getenv(victimDir), Guest: guestBinary}
	if verb == "resume in a shell" {
		c.Shells = gvisor.Shells{Most: 1, Logger: slog.Default()}
	}
	d, err := gvisor.New(c)
	if err != nil {
		t.Fatal(err)
	}
	id := sandbox.ID(os.Getenv(victimID))
	found, err := d.Find(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	ready := filepath.Join(os.Getenv(victimDir), "ready")
	if strings.HasPrefix(verb, "saved: ") {
		useSavedAsVictim(t, d, id, found.Saved, verb)
		return
	}
	if verb == "fork" || verb == "capture" {
		forkAsVictim(t, d, id, found.State, verb)
		return
	}
	if verb == "pause" {
		m, err := d.Recover(t.Context(), id, found.State)
		if err != nil {
			t.Fatal(err)
		}
		os.WriteFile(ready, nil, 0o600)
		_, err = d.Pause(t.Context(), m, driver.KeepMemory)
		t.Log(err)
		return
	}
	spec := newSpec(t)
	spec.ID = id
	if c.Shells.Most > 0 {
		if err := d.ExpectWake(spec, found.Saved); err != nil {
			t.Fatal(err)
		}
		someShells(t, d, 1)
	}
	os.WriteFile(ready, nil, 0o600)
	_, err = d.Resume(t.Context(), spec, found.Saved)
	t.Log(err)
}

// TestFindAfterAKill kills the process that pauses or resumes at moments spread
// over the whole of it: the machine is there afterwards, alive or aside, with
// all that it had.
func TestFindAfterAKill(t *testing.T) {
	if os.Getenv(victimVerb) != "" {
		t.Skip("this is the victim")
	}
	for verb, moments := range map[string][]time.Duration{
		"pause": {0, 10, 30, 60, 100, 150, 250}, "resume": {0, 30, 60, 100, 150, 250}, "resume in a shell": {0, 4, 10, 20, 60},
	} {
		for _, after := range moments {
			t.Run(verb+" "+(after*time.Millisecond).String(), func(t *testing.T) {
				findAfterAKill(t, verb, after*time.Millisecond)
			})
		}
	}
}

func findAfterAKill(t *testing.T, verb string, after time.Duration) {
	dir := t.TempDir()
	d := newDriver(t, dir)
	spec := newSpec(t)
	m, err := d.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	b := client(t, m)
	b.mustSh(t, "user", "echo kept > ~/file; sleep 10000 > /dev/null 2>&1 & echo $! > ~/pid")
	if verb != "pause" {
		if _, err := d.Pause(t.Context(), m, driver.KeepMemory); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	killed(t, verb, dir, spec.ID, after)

	again := newDriver(t, dir)
	found, err := again.Find(t.Context(), spec.ID)
	if err != nil {
		t.Fatalf("find: %v", err)
	}
	what := "alive"
	var live driver.Machine
	if found.State != nil {
		live, err = again.Recover(t.Context(), spec.ID, found.State)
	} else {
		what = "aside"
		live, err = again.Resume(t.Context(), spec, found.Saved)
	}
	if err != nil {
		t.Fatalf("take up what is %s: %v", what, err)
	}
	t.Log(what)
	b = client(t, live)
	if got := b.mustSh(t, "user", "cat ~/file; kill -0 $(cat ~/pid) && echo lives"); got != "kept\nlives" {
		t.Errorf("inside: %q", got)
	}
	if err := live.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := again.Sweep(t.Context(), nil); err != nil { // an engine that waited
		t.Fatal(err)
	}
	if left := leftovers(again, dir); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// killed runs a victim and kills it some time after it has begun its verb.
func killed(t *testing.T, verb, dir string, id sandbox.ID, after time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run", "^TestVictim$", "-test.v")
	cmd.Env = append(os.Environ(), victimVerb+"="+verb, victimDir+"="+dir, victimID+"="+string(id),
		"TMPDIR="+t.TempDir()) // what it has there nobody else removes
	cmd.WaitDelay = time.Second
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready := filepath.Join(dir, "ready")
	for {
		if _, err := os.Stat(ready); err == nil {
			break
		}
		if ctx.Err() != nil {
			said, _ := os.ReadFile(log.Name())
			t.Fatalf("the victim never began: %s", said)
		}
		time.Sleep(time.Millisecond)
	}
	time.Sleep(after)
	cmd.Process.Kill()
	cmd.Process.Wait() // not its children: they live on with its output
	if err := os.Remove(ready); err != nil {
		t.Fatal(err)
	}
}
