package hostile

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/test/rig"
)

// victim is a sandbox that is made to use up what it can, beside one that must not
// notice.
type victim struct {
	*rig.Server
	t             *testing.T
	id, neighbour sandbox.ID
}

// TestExhaustion has a sandbox ask for more than there is, in many ways. Each meets a
// bound and is told so, and afterwards it is as well as its neighbour.
func TestExhaustion(t *testing.T) {
	s := rig.Start(t, "--warm", "0")
	made := func(l sandbox.Limits) sandbox.ID {
		t.Helper()
		b, err := s.Create(t.Context(), sandbox.CreateRequest{Limits: l})
		if err != nil {
			t.Fatal(err)
		}
		return b.ID
	}
	v := victim{Server: s, id: made(sandbox.Limits{MemoryBytes: 1 << 30, DiskBytes: 256 << 20, Processes: 200, OpenFiles: 512, Files: 8192}), neighbour: made(sandbox.Limits{})}
	for _, a := range []struct {
		what string
		try  func(victim)
	}{
		{"tasks, descriptors and files", victim.tasks},
		{"memory", victim.memory},
		{"an archive that unpacks to more than the disk", victim.bomb},
		{"a file that is larger than the disk", victim.sparse},
		{"a folder of many names", victim.names},
		{"watchers", victim.watchers},
		{"a terminal that changes its size without end", victim.sizes},
		{"output that nobody reads", victim.unread},
		{"an environment", victim.environment},
	} {
		t.Run(a.what, func(t *testing.T) {
			v := v
			v.t = t
			a.try(v)
			for _, id := range []sandbox.ID{v.id, v.neighbour} {
				if got := run(t, s, id, "user", "echo well"); got != "well\n" {
					t.Errorf("%s says %q", id, got)
				}
			}
		})
	}
}

// refused fails the test unless err is of a kind, and says what to do.
func (v victim) refused(what string, err error, kinds ...sandbox.Kind) {
	v.t.Helper()
	for _, k := range kinds {
		if sandbox.KindOf(err) == k && sandbox.HintOf(err) != "" {
			return
		}
	}
	v.t.Errorf("%s: %v (%s), want %q with a hint", what, err, sandbox.HintOf(err), kinds)
}

// tasks has root hold every task, descriptor and file that there is.
func (v victim) tasks() {
	const hoard = `
import errno, os, sys, time
def until(want, step):
    for n in range(100000):
        try:
            step(n)
        except OSError as e:
            assert e.errno in want, e
            return n
    raise Exception("without end")
os.mkdir("/opt/many")
files = until([errno.ENOSPC], lambda n: open(f"/opt/many/{n}", "w").close())
held = []
opened = until([errno.EMFILE], lambda n: held.append(os.open("/", os.O_RDONLY)))
def child(n):
    if os.fork() == 0:
        time.sleep(1000)
children = until([errno.EAGAIN], child)
print(files, opened, children, flush=True)
time.sleep(1000)`
	p, err := v.StartProcess(v.t.Context(), string(v.id), sandbox.Command{Argv: []string{"python3", "-c", hoard}, User: "root"})
	if err != nil {
		v.t.Fatal(err)
	}
	line, err := v.WaitLine(v.t.Context(), string(v.id), p.ID, sandbox.LineWait{Timeout: 4 * time.Minute, Regexp: `^\d+ \d+ \d+|Error|Exception`})
	if err != nil {
		v.t.Fatal(err)
	}
	var files, opened, children int
	if _, err := fmt.Sscanf(line.Text, "%d %d %d", &files, &opened, &children); err != nil || files < 1000 || files > 8192 || opened > 512 || children > 200 {
		v.t.Fatalf("it says %q, %v", line.Text, err)
	}
	// The owner's own commands are not among those that are counted.
	if _, err := v.StartProcess(v.t.Context(), string(v.id), sandbox.Command{Argv: []string{"true"}}); err != nil {
		v.t.Errorf("a command of the owner's meanwhile: %v", err)
	}
	if _, err := v.Stat(v.t.Context(), string(v.id), "/opt/many/0", false); err != nil {
		v.t.Errorf("a look at a file meanwhile: %v", err)
	}
	if _, err := v.RemoveProcess(v.t.Context(), string(v.id), p.ID); err != nil {
		v.t.Fatalf("its end: %v", err)
	}
	if err := v.RemoveFile(v.t.Context(), string(v.id), "/opt/many", true); err != nil {
		v.t.Fatal(err)
	}
}

// memory has processes take memory until there is none. One that is killed for that gives
// it back; what is held by many small ones stays taken, until there is more of it.
func (v victim) memory() {
	out := run(v.t, v.Server, v.id, "root", `for i in 1 2 3; do python3 -c 'b = []
while True: b.append(bytearray(1 << 20))' 2>/dev/null & done; wait; head -c 1G /dev/zero > /dev/shm/fill || echo full; rm /dev/shm/fill`)
	if !strings.HasSuffix(out, "full\n") {
		v.t.Errorf("it says %q", out)
	}
	const hoard = `
import os, signal, time
def child():
    held = bytearray(4 << 20)
    for at in range(0, len(held), 4096): held[at] = 1
    time.sleep(1000)
while True:
    try:
        if os.fork() == 0: child()
    except OSError:
        time.sleep(0.1)`
	p, err := v.StartProcess(v.t.Context(), string(v.id), sandbox.Command{Argv: []string{"python3", "-c", hoard}})
	if err != nil {
		v.t.Fatal(err)
	}
	for range 30 {
		if _, err := v.StartProcess(v.t.Context(), string(v.id), sandbox.Command{Argv: []string{"true"}}); err != nil {
			v.refused("a command while memory runs out", err, sandbox.Exhausted)
		}
	}
	if _, err := v.RemoveProcess(v.t.Context(), string(v.id), p.ID); err != nil {
		v.t.Errorf("its end: %v", err)
	}
	for _, verb := range []func(context.Context, string) (sandbox.Sandbox, error){v.Stop, v.Start} { // what it has left behind ends too
		if _, err := verb(v.t.Context(), string(v.id)); err != nil {
			v.t.Fatal(err)
		}
	}
}

// bomb is an archive that would be of few bytes if it were packed.
func (v victim) bomb() {
	r, w := io.Pipe()
	go func() {
		out := tar.NewWriter(w)
		err := out.WriteHeader(&tar.Header{Name: "endless", Mode: 0o644, Size: 1 << 40})
		for b := bytes.Repeat([]byte("x"), 1<<20); err == nil; {
			_, err = out.Write(b)
		}
		w.CloseWithError(err)
	}()
	_, err := v.Unpack(v.t.Context(), string(v.id), "/workspace", sandbox.UnpackOptions{}, r)
	r.Close()
	v.refused("a file of a TiB", err, sandbox.Exhausted)
	run(v.t, v.Server, v.id, "root", "rm -rf /workspace/endless; head -c 100M /dev/zero > /workspace/room && rm /workspace/room")
}

// sparse is a file without bytes of its own, at which nobody may work for ever.
func (v victim) sparse() {
	run(v.t, v.Server, v.id, "user", "truncate -s 1T /workspace/vast")
	for what, work := range map[string]func(context.Context) error{
		"its sum": func(ctx context.Context) error {
			_, err := v.HashFile(ctx, string(v.id), "/workspace/vast")
			return err
		},
		"a copy": func(ctx context.Context) error {
			_, err := v.CopyFile(ctx, string(v.id), "/workspace/vast", "/workspace/copy", sandbox.CopyOptions{})
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(v.t.Context(), time.Second)
		if err := work(ctx); !errors.Is(err, context.DeadlineExceeded) {
			v.t.Errorf("%s: %v", what, err)
		}
		cancel()
	}
	body, info, err := v.ReadFile(v.t.Context(), string(v.id), "/workspace/vast", sandbox.ReadRange{})
	if err != nil || info.Size != 1<<40 {
		v.t.Fatalf("read: %+v, %v", info, err)
	}
	if _, err := io.CopyN(io.Discard, body, 10<<20); err != nil {
		v.t.Error(err)
	}
	body.Close()
	run(v.t, v.Server, v.id, "user", "rm -f /workspace/vast /workspace/copy")
}

// names are of all bytes that there may be.
func (v victim) names() {
	const many = 5000
	run(v.t, v.Server, v.id, "user", fmt.Sprintf(`python3 -c '
import os
os.mkdir(b"/workspace/many")
for n in range(%d):
    open(b"/workspace/many/\n%%d \xff\x01\"" %% n, "w").close()'`, many))
	seen := map[string]bool{}
	for after := ""; ; {
		page, more, err := v.ListDir(v.t.Context(), string(v.id), "/workspace/many", 1, 1000, after)
		if err != nil {
			v.t.Fatal(err)
		}
		for _, f := range page {
			seen[f.Path] = true
			after = f.Path
		}
		if !more {
			break
		}
	}
	if len(seen) != many || !seen["/workspace/many/\n4999 \xff\x01\""] {
		v.t.Errorf("%d names of %d are listed", len(seen), many)
	}
	if err := v.RemoveFile(v.t.Context(), string(v.id), "/workspace/many", true); err != nil {
		v.t.Error(err)
	}
}

// watchers are opened until there may be no more.
func (v victim) watchers() {
	var open []sandbox.Watch
	defer func() {
		for _, w := range open {
			w.Close()
		}
	}()
	for len(open) < 1000 {
		w, err := v.Watch(v.t.Context(), string(v.id), sandbox.WatchRequest{Path: "/workspace", Recursive: true})
		if err == nil {
			_, err = w.Recv()
		}
		if err != nil {
			v.refused(fmt.Sprintf("watcher %d", len(open)+1), err, sandbox.Exhausted)
			return
		}
		open = append(open, w)
	}
	v.t.Error("a thousand watch one folder")
}

// sizes are given to a terminal while it prints.
func (v victim) sizes() {
	t, _, err := v.OpenTerminal(v.t.Context(), string(v.id), sandbox.TerminalRequest{Name: "storm", Argv: []string{"sh", "-c", "trap : WINCH; yes"}})
	if err != nil {
		v.t.Fatal(err)
	}
	for n := range 300 {
		if err := v.ResizeTerminal(v.t.Context(), string(v.id), t.ID, 1+n*37%500, 1+n*91%300); err != nil {
			v.t.Fatalf("size %d: %v", n, err)
		}
	}
	if err := v.CloseTerminal(v.t.Context(), string(v.id), t.ID); err != nil {
		v.t.Error(err)
	}
}

// unread is a flood for readers that do not read.
func (v victim) unread() {
	p, err := v.StartProcess(v.t.Context(), string(v.id), sandbox.Command{Argv: []string{"yes"}, Detach: true})
	if err != nil {
		v.t.Fatal(err)
	}
	for range 20 {
		events, err := v.Attach(v.t.Context(), string(v.id), p.ID, sandbox.Offsets{})
		if err != nil {
			v.t.Fatal(err)
		}
		defer events.Close()
	}
	if got := run(v.t, v.Server, v.id, "user", "echo meanwhile"); got != "meanwhile\n" {
		v.t.Errorf("another command says %q", got)
	}
	if _, err := v.RemoveProcess(v.t.Context(), string(v.id), p.ID); err != nil {
		v.t.Error(err)
	}
}

// environment is more than a program can be started with.
func (v victim) environment() {
	start := func(size int) error {
		p, err := v.StartProcess(v.t.Context(), string(v.id), sandbox.Command{Argv: []string{"true"}, Env: map[string]string{"LARGE": strings.Repeat("x", size)}})
		if err != nil {
			return err
		}
		exit, err := v.WaitProcess(v.t.Context(), string(v.id), p.ID)
		if err == nil && exit.Code != 0 {
			err = fmt.Errorf("exit %d", exit.Code)
		}
		return err
	}
	if err := start(64 << 10); err != nil {
		v.t.Errorf("64 KiB: %v", err)
	}
	v.refused("512 KiB in one variable", start(512<<10), sandbox.Invalid)
	v.refused("2 MiB", start(2<<20), sandbox.Invalid)
}
