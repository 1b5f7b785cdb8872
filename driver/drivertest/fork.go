package drivertest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/guestclient"
	"github.com/berth-dev/berth/sandbox"
)

// forks returns the driver's way to copy machines with their memory. Where there
// is none, that must be said as Unsupported, and ok is false.
func (b *bed) forks() (f driver.Forker, ok bool) {
	b.t.Helper()
	f, ok = b.d.(driver.Forker)
	if !ok {
		b.t.Logf("LOUDLY: the driver %s copies no machine", b.d.Class())
		b.end()
		return nil, false
	}
	spec := b.h.Spec()
	_, err := f.Fork(within(b.t), b.m, []driver.Spec{})
	if sandbox.KindOf(err) == sandbox.Unsupported {
		b.t.Logf("LOUDLY: the driver %s copies no machine that runs: %v", b.d.Class(), err)
		_, err := f.Fork(within(b.t), b.m, []driver.Spec{spec})
		wantKind(b.t, "fork what runs", err, sandbox.Unsupported)
		b.end()
		return nil, false
	}
	if err != nil {
		b.t.Fatalf("fork into nothing: %v", err)
	}
	return f, true
}

// kin are specs for children of b, each with a hostname of its own.
func (b *bed) kin(n int) []driver.Spec {
	var specs []driver.Spec
	for range n {
		s := b.h.Spec()
		s.Root, s.Limits, s.Mounts = b.spec.Root, b.spec.Limits, b.spec.Mounts
		s.Hostname = "h-" + string(s.ID)
		specs = append(specs, s)
	}
	return specs
}

// forked makes n children of b as it runs.
func (b *bed) forked(n int) []*bed {
	b.t.Helper()
	specs := b.kin(n)
	f, err := b.d.(driver.Forker).Fork(within(b.t), b.m, specs)
	if err != nil {
		b.t.Fatalf("fork: %v (%s)", err, sandbox.HintOf(err))
	}
	if f.Pause <= 0 || len(f.Stages) == 0 {
		b.t.Errorf("it stood still for %v, with %d stages", f.Pause, len(f.Stages))
	}
	return b.adopt(specs, f)
}

// adopt makes beds of children; each must be there.
func (b *bed) adopt(specs []driver.Spec, f driver.Forks) []*bed {
	b.t.Helper()
	if len(f.Each) != len(specs) {
		b.t.Fatalf("%d outcomes for %d children", len(f.Each), len(specs))
	}
	var beds []*bed
	for i, one := range f.Each {
		if one.Err != nil {
			b.t.Fatalf("child %d: %v (%s)", i, one.Err, sandbox.HintOf(one.Err))
		}
		beds = append(beds, b.child(specs[i], one.Machine))
	}
	return beds
}

// child is a bed for a machine that was made like b's.
func (b *bed) child(spec driver.Spec, m driver.Machine) *bed {
	b.t.Helper()
	if m.ID() != spec.ID {
		b.t.Errorf("the child is %s, want %s", m.ID(), spec.ID)
	}
	k := &bed{t: b.t, h: b.h, d: b.d, spec: spec}
	k.use(m)
	b.t.Cleanup(k.remove)
	hello, err := k.guest.Hello(within(b.t))
	if err != nil || hello.SandboxID != string(spec.ID) {
		b.t.Errorf("the child's guest is %+v, %v", hello, err)
	}
	return k
}

// restore makes a machine of a captured folder.
func (b *bed) restore(d driver.Driver, dir string) *bed {
	b.t.Helper()
	spec := b.kin(1)[0]
	m, err := d.(driver.Snapshotter).Restore(within(b.t), spec, dir)
	if err != nil {
		b.t.Fatalf("restore: %v (%s)", err, sandbox.HintOf(err))
	}
	k := b.child(spec, m)
	k.d = d
	return k
}

// over stops machines, and looks for what is left when none is.
func over(t *testing.T, beds ...*bed) {
	t.Helper()
	for _, k := range beds {
		stop(t, k.m)
		k.m = nil
		k.guest.Close()
		k.gone = true
	}
}

// testFork: a process goes on in the machine and in its children, each by itself,
// and those who follow it in the machine notice nothing.
func testFork(t *testing.T, h Harness) {
	b, ok := makeBed(t, h)
	if !ok {
		return
	}
	if _, ok := b.forks(); !ok {
		return
	}
	// A command whose caller reads it all the time, and one that nobody reads.
	followed, err := b.guest.Start(within(t), sandbox.Command{Argv: []string{"sh", "-c", count}, Lossless: true, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	defer followed.Close()
	started, err := followed.Recv()
	if err != nil || started.Started == nil {
		t.Fatalf("%+v %v", started, err)
	}
	follower := &counter{id: started.Started.ID}
	lines := newLines(t, followed)
	lines.next(3)
	c := b.startCounter()
	output(t, b.guest, "echo before > file")

	then := *c
	kids := b.forked(2)
	lines.next(5) // without a gap
	b.follow(c, 3)
	for i, k := range kids {
		other, mine := *follower, then
		k.follow(&mine, 3)
		k.follow(&other, 3) // its caller is the machine's, and it lives
		output(t, k.guest, fmt.Sprintf("test $(cat file) = before; echo child %d > file", i))
	}
	for i, k := range kids {
		if got := output(t, k.guest, "cat file"); got != fmt.Sprintf("child %d\n", i) {
			t.Errorf("child %d reads %q", i, got)
		}
	}
	if got := output(t, b.guest, "cat file"); got != "before\n" {
		t.Errorf("the machine reads %q", got)
	}
	lines.next(3)
	// What a child does to a process it does to its own.
	if err := kids[0].guest.Signal(within(t), follower.id, "SIGKILL"); err != nil {
		t.Error(err)
	}
	lines.next(3)
	other := *follower
	kids[1].follow(&other, 3)
	over(t, kids[0])
	lines.next(3)
	over(t, kids[1])
	lines.next(3)
	b.end()
}

// lines reads what a counter prints from a stream that stays open.
type lines struct {
	t    *testing.T
	ev   sandbox.Events
	text string
	last int
}

func newLines(t *testing.T, ev sandbox.Events) *lines { return &lines{t: t, ev: ev} }

// next reads n more lines, which go on where the last one ended.
func (l *lines) next(n int) {
	l.t.Helper()
	for n > 0 {
		line, rest, whole := strings.Cut(l.text, "\n")
		if !whole {
			e, err := l.ev.Recv()
			if err != nil || e.Exit != nil || e.Missed > 0 {
				l.t.Fatalf("the open stream: %+v, %v", e, err)
			}
			l.text += string(e.Data)
			continue
		}
		l.text = rest
		_, number, _ := strings.Cut(line, " ")
		i, err := strconv.Atoi(number)
		if err != nil || i != l.last+1 {
			l.t.Fatalf("after %d came %q", l.last, line)
		}
		l.last = i
		n--
	}
}

// testForkMany: a hundred children, many of them made at once, are told apart by all
// that tells machines apart, and draw different numbers.
func testForkMany(t *testing.T, h Harness) {
	b, ok := makeBed(t, h)
	if !ok {
		return
	}
	if _, ok := b.forks(); !ok {
		return
	}
	const times, many = 5, 20
	draw := "cat /proc/sys/kernel/random/uuid 2>/dev/null; head -c 16 /dev/urandom | od -An -tx1; cat /etc/machine-id; hostname; cat /etc/hostname"
	seen := map[string]int{}
	tell := func(i int, k *bed) {
		t.Helper()
		got := strings.Fields(strings.ReplaceAll(output(t, k.guest, draw), " ", ""))
		want := k.spec.Hostname
		if n := len(got); n < 4 || got[n-2] != want || got[n-1] != want {
			t.Errorf("child %d is %q, want the hostname %q", i, got, want)
			return
		}
		for _, word := range got[:len(got)-2] {
			if before, twice := seen[word]; twice {
				t.Errorf("%d and %d both have %s", before, i, word)
			}
			seen[word] = i
		}
	}
	for n := range times {
		kids := b.forked(many)
		for i, k := range kids {
			tell(n*many+i, k)
		}
		over(t, kids...)
	}
	tell(times*many, b)
	b.end()
}

// testForkChain: forks of forks, and of what is paused or stopped.
func testForkChain(t *testing.T, h Harness) {
	b, ok := makeBed(t, h)
	if !ok {
		return
	}
	f, ok := b.forks()
	if !ok {
		return
	}
	c := b.startCounter()
	first := b.forked(1)[0]
	one := *c
	first.follow(&one, 3)
	second := first.forked(1)[0]
	two := one
	second.follow(&two, 3)
	first.follow(&one, 3)

	saved := second.pause(driver.KeepMemory)
	specs := b.kin(2)
	got, err := f.ForkSaved(within(t), second.spec.ID, saved, specs)
	if err != nil {
		t.Fatal(err)
	}
	third := b.adopt(specs, got)
	for _, k := range third {
		three := two
		k.follow(&three, 3)
	}
	second.resume(saved) // which serves as before
	second.follow(&two, 3)
	over(t, append(third, first)...)
	second.endAmong()
	b.follow(c, 3)
	b.end()
}

// endAmong ends a bed beside which there are others.
func (b *bed) endAmong() {
	b.t.Helper()
	if b.m != nil {
		over(b.t, b)
	}
	if err := b.pauser().Discard(within(b.t), b.spec.ID); err != nil {
		b.t.Fatalf("discard: %v", err)
	}
	b.gone = true
}

// testForkStopped: the children of what is stopped start anew on its disk.
func testForkStopped(t *testing.T, h Harness) {
	b, ok := makeBed(t, h)
	if !ok {
		return
	}
	f, can := b.d.(driver.Forker)
	if !can {
		t.Logf("LOUDLY: the driver %s copies no machine", b.d.Class())
		b.end()
		return
	}
	b.startCounter()
	output(t, b.guest, "echo kept > file; chmod 600 file")
	saved := b.pause(driver.KeepDisk)
	specs := b.kin(2)
	got, err := f.ForkSaved(within(t), b.spec.ID, saved, specs)
	if err != nil {
		t.Fatalf("fork what is stopped: %v", err)
	}
	kids := b.adopt(specs, got)
	for i, k := range kids {
		if list, err := k.guest.Processes(within(t)); err != nil || len(list) > 0 {
			t.Errorf("child %d runs %+v, %v", i, list, err)
		}
		if got := output(t, k.guest, "cat file; stat -c %a file"); got != "kept\n600\n" {
			t.Errorf("child %d has %q", i, got)
		}
		output(t, k.guest, fmt.Sprintf("echo %d > file", i))
	}
	b.resume(saved)
	if got := output(t, b.guest, "cat file"); got != "kept\n" {
		t.Errorf("the machine has %q", got)
	}
	over(t, kids...)
	b.end()
}

// testForkInPart: children that cannot be made leave nothing, and take no other
// with them.
func testForkInPart(t *testing.T, h Harness) {
	b, ok := makeBed(t, h)
	if !ok {
		return
	}
	f, ok := b.forks()
	if !ok {
		return
	}
	c := b.startCounter()
	specs := b.kin(5)
	specs[1].ID = "../../../tmp/abcdefgh"
	specs[2].ID = b.spec.ID
	specs[4].ID = specs[0].ID
	got, err := f.Fork(within(t), b.m, specs)
	if err != nil {
		t.Fatal(err)
	}
	var kids []*bed
	for i, kinds := range [][]sandbox.Kind{nil, {sandbox.Invalid}, {sandbox.Conflict}, nil, {sandbox.Conflict}} {
		one := got.Each[i]
		if i == 0 && one.Err != nil { // of two with one id either
			one, got.Each[4] = got.Each[4], one
		}
		if kinds != nil {
			wantKind(t, fmt.Sprintf("child %d", i), one.Err, kinds...)
			continue
		}
		if one.Err != nil {
			t.Fatalf("child %d: %v", i, one.Err)
		}
		kids = append(kids, b.child(specs[i], one.Machine))
	}
	for _, k := range kids {
		mine := *c
		k.follow(&mine, 3)
	}
	b.follow(c, 3)
	over(t, kids...)
	b.end()
}

// testForkRefusals: what cannot be copied says why, and runs on.
func testForkRefusals(t *testing.T, h Harness) {
	b, ok := makeBed(t, h)
	if !ok {
		return
	}
	f, ok := b.forks()
	if !ok {
		return
	}
	c := b.startCounter()
	ended, cancel := context.WithCancel(within(t))
	cancel()
	if _, err := f.Fork(ended, b.m, b.kin(1)); !errors.Is(err, context.Canceled) {
		t.Errorf("in an ended context: %v", err)
	}
	if _, err := f.ForkSaved(within(t), b.spec.ID, []byte("{}"), b.kin(1)); err == nil {
		t.Error("bytes of nobody were taken")
	}
	_, err := f.Fork(within(t), stranger{}, b.kin(1))
	wantKind(t, "a machine of another driver", err, sandbox.Invalid)
	b.follow(c, 3)
	m := b.m
	stop(t, m)
	b.m = nil
	_, err = f.Fork(within(t), m, b.kin(1))
	wantKind(t, "a machine that has ended", err, sandbox.Unavailable)
	b.end()
}

// stranger is a machine that no driver has made.
type stranger struct{ driver.Machine }

// talk runs a line of bash and returns what it printed.
func talk(t *testing.T, c *guestclient.Client, text string) string {
	t.Helper()
	r := run(t, c, sandbox.Command{Argv: []string{"bash", "-c", text}})
	if r.exit.Code != 0 {
		t.Fatalf("%q: %+v, %s", text, r.exit, &r.stderr)
	}
	return strings.TrimSpace(r.stdout.String())
}
