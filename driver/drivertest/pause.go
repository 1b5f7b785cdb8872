package drivertest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/guestclient"
	"github.com/berth-dev/berth/sandbox"
)

// bed is a machine that is put aside and taken up again.
type bed struct {
	gone  bool // all was removed
	t     *testing.T
	h     Harness
	d     driver.Driver
	spec  driver.Spec
	m     driver.Machine // nil while it is aside
	guest *guestclient.Client
}

// makeBed makes a machine whose driver can pause; otherwise ok is false.
func makeBed(t *testing.T, h Harness) (b *bed, ok bool) {
	t.Helper()
	if _, can := h.Driver.(driver.Pauser); !can {
		t.Logf("the driver %s puts no machine aside", h.Driver.Class())
		return nil, false
	}
	b = &bed{t: t, h: h, d: h.Driver, spec: h.Spec()}
	m, err := b.d.Create(within(t), b.spec)
	if err != nil {
		t.Fatalf("create: %v (%s)", err, sandbox.HintOf(err))
	}
	b.use(m)
	t.Cleanup(b.remove)
	return b, true
}

func (b *bed) pauser() driver.Pauser { return b.d.(driver.Pauser) }

func (b *bed) use(m driver.Machine) {
	b.m, b.guest = m, guestclient.New(m.Dial)
}

// remove takes all away at the end of a test, whatever its outcome.
func (b *bed) remove() {
	if b.gone {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	b.guest.Close()
	err := error(nil)
	if b.m != nil {
		err = b.m.Stop(ctx)
	}
	if err = errors.Join(err, b.pauser().Discard(ctx, b.spec.ID)); err != nil {
		b.t.Errorf("remove at the end: %v", err)
	}
}

// end removes the machine and all that is put aside.
func (b *bed) end() {
	b.t.Helper()
	if b.m != nil {
		stop(b.t, b.m)
		b.m = nil
	}
	if err := b.pauser().Discard(within(b.t), b.spec.ID); err != nil {
		b.t.Fatalf("discard: %v", err)
	}
	b.guest.Close()
	b.gone = true
	nothingLeft(b.t, b.h)
}

// later goes on with a driver as a later process has it.
func (b *bed) later(reopen func(*testing.T) driver.Driver) {
	b.t.Helper()
	if err := b.d.Close(); err != nil {
		b.t.Fatal(err)
	}
	b.d = reopen(b.t)
}

func (b *bed) pause(keep driver.Keep) []byte {
	b.t.Helper()
	m := b.m
	saved, err := b.pauser().Pause(within(b.t), m, keep)
	if err != nil {
		b.t.Fatalf("pause %s: %v (%s)", keep, err, sandbox.HintOf(err))
	}
	b.m = nil
	b.guest.Close()
	if len(saved) == 0 || len(saved) > maxState {
		b.t.Errorf("saved bytes: %d", len(saved))
	}
	exit, err := m.Wait(within(b.t))
	if err != nil || !exit.Asked || exit.At.IsZero() {
		b.t.Errorf("wait after the pause: %+v, %v", exit, err)
	}
	_, err = m.Dial(within(b.t))
	wantKind(b.t, "dial what is paused", err, sandbox.Unavailable)
	eventually(b.t, "nothing of it is awake", func() bool { return b.h.Awake == nil || len(b.h.Awake()) == 0 })
	return saved
}

func (b *bed) resume(saved []byte) {
	b.t.Helper()
	m, err := b.pauser().Resume(within(b.t), b.spec, saved)
	if err != nil {
		b.t.Fatalf("resume: %v (%s)", err, sandbox.HintOf(err))
	}
	if m.ID() != b.spec.ID {
		b.t.Errorf("resumed %s, want %s", m.ID(), b.spec.ID)
	}
	b.use(m)
}

// counter counts on its output; each line is "<pid> <n>".
type counter struct {
	id   string
	read int64 // bytes of its output so far
	last int
	pid  string
}

const count = `i=0; while :; do i=$((i+1)); echo "$$ $i"; sleep 0.05; done`

func (b *bed) startCounter() *counter {
	b.t.Helper()
	cmd := sh(count)
	cmd.Detach = true
	ev, err := b.guest.Start(within(b.t), cmd)
	if err != nil {
		b.t.Fatal(err)
	}
	first, err := ev.Recv()
	if err != nil || first.Started == nil {
		b.t.Fatalf("start: %+v, %v", first, err)
	}
	c := &counter{id: first.Started.ID}
	ev.Close()
	b.follow(c, 3)
	return c
}

// follow reads n more lines from the offset that the counter has been read to,
// and checks that they go on where the last one ended.
func (b *bed) follow(c *counter, n int) {
	b.t.Helper()
	ev, err := b.guest.Attach(within(b.t), c.id, sandbox.Offsets{Stdout: c.read})
	if err != nil {
		b.t.Fatalf("attach: %v", err)
	}
	defer ev.Close()
	text := ""
	for strings.Count(text, "\n") < n {
		e, err := ev.Recv()
		switch {
		case err != nil:
			b.t.Fatalf("counter: %v", err)
		case e.Exit != nil:
			b.t.Fatalf("the counter ended: %+v", *e.Exit)
		case e.Missed > 0:
			b.t.Fatalf("%d bytes of output are missing", e.Missed)
		case len(e.Data) > 0 && text == "" && e.Offset != c.read:
			b.t.Fatalf("the output goes on at %d, want %d", e.Offset, c.read)
		}
		text += string(e.Data)
	}
	text = text[:strings.LastIndexByte(text, '\n')+1]
	c.read += int64(len(text))
	for line := range strings.Lines(text) {
		pid, number, _ := strings.Cut(strings.TrimSpace(line), " ")
		if c.pid == "" {
			c.pid = pid
		}
		i, err := strconv.Atoi(number)
		if err != nil || pid != c.pid || i != c.last+1 {
			b.t.Fatalf("after %s %d came %q", c.pid, c.last, line)
		}
		c.last = i
	}
}

// testPause: memory, processes, output and files go on where they were.
func testPause(t *testing.T, h Harness) {
	b, ok := makeBed(t, h)
	if !ok {
		return
	}
	c := b.startCounter()
	output(t, b.guest, "echo kept > file; chmod 600 file; ln -s file link")
	writeTmp(t, b.guest)
	saved := b.pause(driver.KeepMemory)
	b.resume(saved)
	if got := output(t, b.guest, "cat file; readlink link; stat -c %a file"); got != "kept\nfile\n600\n" {
		t.Errorf("files: %q", got)
	}
	readTmp(t, b.guest)
	writeLarge(t, b.guest)
	b.follow(c, 5)
	b.end()
}

// writeLarge writes a file and reads it, in one of the ways that large files take.
func writeLarge(t *testing.T, c *guestclient.Client) {
	t.Helper()
	const size = 1 << 20
	if info, err := c.WriteFile(within(t), "/tmp/large", sandbox.WriteOptions{}, noise(size)); err != nil || info.Size != size {
		t.Fatalf("%+v, %v", info, err)
	}
	body, _, err := c.ReadFile(within(t), "/tmp/large", sandbox.ReadRange{})
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	got, err := io.ReadAll(body)
	if want, _ := io.ReadAll(noise(size)); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %d wanted, or other ones: %v", len(got), size, err)
	}
}

// writeTmp writes to /tmp through the file calls, which no driver lets out.
func writeTmp(t *testing.T, c *guestclient.Client) {
	t.Helper()
	if _, err := c.WriteFile(within(t), "/tmp/kept", sandbox.WriteOptions{}, strings.NewReader("in tmp")); err != nil {
		t.Fatal(err)
	}
}

func readTmp(t *testing.T, c *guestclient.Client) {
	t.Helper()
	body, _, err := c.ReadFile(within(t), "/tmp/kept", sandbox.ReadRange{})
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	buf := make([]byte, 64)
	n, _ := body.Read(buf)
	if string(buf[:n]) != "in tmp" {
		t.Errorf("/tmp: %q", buf[:n])
	}
}

// listen is a server in the one language that every template has.
const listen = `use Socket; $|=1;
socket(S,PF_INET,SOCK_STREAM,0) or die; bind(S,sockaddr_in(0,INADDR_LOOPBACK)) or die; listen(S,5) or die;
my ($port)=sockaddr_in(getsockname(S)); print "$port\n";
while (accept(C,S)) { syswrite(C,"hello from $$\n"); close(C); }`

const connect = `use Socket; socket(S,PF_INET,SOCK_STREAM,0) or die; connect(S,sockaddr_in($ARGV[0],INADDR_LOOPBACK)) or die "$!"; print <S>;`

// testPauseSocket: a socket that listens inside goes on accepting.
func testPauseSocket(t *testing.T, h Harness) {
	b, ok := makeBed(t, h)
	if !ok {
		return
	}
	if r := run(t, b.guest, sh("command -v perl >/dev/null")); r.exit.Code != 0 {
		t.Skip("SKIPPED LOUDLY: the template has no perl to listen with")
	}
	ev, err := b.guest.Start(within(t), sandbox.Command{Argv: []string{"perl", "-e", listen}, Detach: true})
	if err != nil {
		t.Fatal(err)
	}
	port := ""
	for !strings.HasSuffix(port, "\n") {
		e, err := ev.Recv()
		if err != nil || e.Exit != nil {
			t.Fatalf("server: %+v, %v", e, err)
		}
		port += string(e.Data)
	}
	ev.Close()
	ask := func() string {
		r := run(t, b.guest, sandbox.Command{Argv: []string{"perl", "-e", connect, strings.TrimSpace(port)}})
		if r.exit.Code != 0 {
			t.Fatalf("connect: %+v %s", r.exit, &r.stderr)
		}
		return r.stdout.String()
	}
	before := ask()
	b.resume(b.pause(driver.KeepMemory))
	if after := ask(); after != before || !strings.HasPrefix(after, "hello from ") {
		t.Errorf("before %q, after %q", before, after)
	}
	b.end()
}

// testPauseTwice: the second time is as good as the first, and bytes serve once.
func testPauseTwice(t *testing.T, h Harness) {
	b, ok := makeBed(t, h)
	if !ok {
		return
	}
	c := b.startCounter()
	first := b.pause(driver.KeepMemory)
	b.resume(first)
	b.follow(c, 2)
	_, err := b.pauser().Resume(within(t), b.spec, first)
	wantKind(t, "resume what runs", err, sandbox.Conflict)
	b.follow(c, 2)
	second := b.pause(driver.KeepMemory)
	b.resume(second)
	b.follow(c, 2)
	stop(t, b.m)
	b.m = nil
	_, err = b.pauser().Resume(within(t), b.spec, second)
	wantKind(t, "resume from void bytes", err, sandbox.NotFound)
	b.end()
}

// testPauseDisk: files stay as they are, with their owners, modes and links;
// nothing that ran does.
func testPauseDisk(t *testing.T, h Harness) {
	b, ok := makeBed(t, h)
	if !ok {
		return
	}
	c := b.startCounter()
	output(t, b.guest, `echo kept > file; chmod 640 file; ln file hard; ln -s file soft; mkdir -m 1770 dir; echo in > dir/in; mkfifo pipe; : > empty; rm -f gone`)
	const look = `stat -c '%n %F %a %h %u:%g %s' file hard soft dir dir/in pipe empty; cat hard soft dir/in; readlink soft`
	before := output(t, b.guest, look)
	for range 2 {
		b.resume(b.pause(driver.KeepDisk))
		if after := output(t, b.guest, look); after != before {
			t.Errorf("before\n%s\nafter\n%s", before, after)
		}
	}
	all, err := b.guest.Processes(within(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if p.Exit == nil || strconv.Itoa(p.PID) == c.pid && slices.Equal(p.Argv, sh(count).Argv) {
			t.Errorf("a process outlived a new start: %+v", p)
		}
	}
	b.end()
}

// testPauseReopen: what is aside is taken up by a later process.
func testPauseReopen(t *testing.T, h Harness) {
	for _, keep := range []driver.Keep{driver.KeepMemory, driver.KeepDisk} {
		reopen := h.Reopen
		if keep == driver.KeepDisk && h.ReopenDisk != nil {
			reopen = h.ReopenDisk
		}
		if reopen == nil {
			t.Logf("LOUDLY: what is kept of %s does not outlive this driver's process", keep)
			continue
		}
		b, ok := makeBed(t, h)
		if !ok {
			return
		}
		output(t, b.guest, "echo kept > file")
		var c *counter
		if keep == driver.KeepMemory {
			c = b.startCounter()
		}
		saved := b.pause(keep)
		b.later(reopen)
		h.Driver = b.d
		b.resume(saved)
		if got := output(t, b.guest, "cat file"); got != "kept\n" {
			t.Errorf("%s: file %q", keep, got)
		}
		if c != nil {
			b.follow(c, 3)
		}
		b.end()
	}
}
