package drivertest

import (
	_ "embed"
	"strings"
	"testing"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/guestclient"
	"github.com/berth-dev/berth/sandbox"
)

// fileServer serves a file system over a folder: fileserver.py OPTIONS FOLDER. It says when
// it is mounted, and when that is over.
//
//go:embed fileserver.py
var fileServer string

const fileServerPath = "/opt/fileserver.py"

// unmounter unmounts a folder, as its libraries would.
func unmounter(options, folder string) string {
	return "bash -c 'exec -a fusermount /.berth/berth-guest " + options + " " + folder + "'"
}

// serveFiles mounts a file system over a new folder, and returns its server's id.
func serveFiles(t *testing.T, c *guestclient.Client, user, options, folder string) string {
	t.Helper()
	cmd := sh("mkdir -p " + folder + " && exec python3 " + fileServerPath + " " + options + " " + folder + " 2>&1")
	cmd.Detach, cmd.User = true, user
	ev, err := c.Start(within(t), cmd)
	if err != nil {
		t.Fatal(err)
	}
	first, err := ev.Recv()
	if err != nil || first.Started == nil {
		t.Fatalf("start: %+v, %v", first, err)
	}
	ev.Close()
	hears(t, c, first.Started.ID, "mounted")
	return first.Started.ID
}

// hears waits for a line of a server's.
func hears(t *testing.T, c *guestclient.Client, id, line string) {
	t.Helper()
	if _, err := c.WaitLine(within(t), id, sandbox.LineWait{Regexp: "^" + line + "$"}); err != nil {
		t.Fatalf("the server never says %q: %v", line, err)
	}
}

// asRoot runs a line of root's that must succeed and returns what it printed.
func asRoot(t *testing.T, c *guestclient.Client, line string) string {
	t.Helper()
	cmd := sh(line)
	cmd.User = "root"
	r := run(t, c, cmd)
	if r.exit.Code != 0 || r.stderr.Len() > 0 {
		t.Fatalf("%q: %+v, stdout %q, stderr %q", line, r.exit, &r.stdout, &r.stderr)
	}
	return r.stdout.String()
}

// refusedTo runs a line that must fail with a word in what it says.
func refusedTo(t *testing.T, c *guestclient.Client, user, line, word string) {
	t.Helper()
	cmd := sh(line)
	cmd.User = user
	r := run(t, c, cmd)
	if r.exit.Code == 0 || !strings.Contains(r.stderr.String()+r.stdout.String(), word) {
		t.Errorf("%s by %s: %+v, %q, %q; want it refused with %q", line, user, r.exit, &r.stdout, &r.stderr, word)
	}
}

// fileBed makes a bed that may mount so many file systems, and has their server's program.
func fileBed(t *testing.T, h Harness, most int64) (*bed, bool) {
	t.Helper()
	can, err := h.Driver.Probe(within(t))
	if err != nil {
		t.Fatal(err)
	}
	if !can.Isolates {
		t.Logf("LOUDLY: the driver %s isolates nothing: whether its machines mount is their host's to say", h.Driver.Class())
		return nil, false
	}
	spec := h.Spec()
	spec.Limits.FuseMounts = most
	m, err := h.Driver.Create(within(t), spec)
	if err != nil {
		t.Fatalf("create: %v (%s)", err, sandbox.HintOf(err))
	}
	b := &bed{t: t, h: h, d: h.Driver, spec: spec}
	t.Cleanup(b.remove)
	b.use(m)
	if _, err := b.guest.WriteFile(within(t), fileServerPath, sandbox.WriteOptions{User: "root"}, strings.NewReader(fileServer)); err != nil {
		t.Fatal(err)
	}
	return b, true
}

// testFileSystems: programs mount FUSE file systems as far as the limits let them, and
// these are put aside and copied with the memory.
func testFileSystems(t *testing.T, h Harness) {
	b, ok := fileBed(t, h, 2)
	if !ok {
		return
	}
	const list = "mountpoint -q /mnt/files && ls /mnt/files && cat /mnt/files/hello"
	const listed = "hello\nstuck\nof the server"
	server := serveFiles(t, b.guest, "root", "ro,allow_other,fsname=theirs", "/mnt/files")
	if got := asRoot(t, b.guest, list); got != listed {
		t.Errorf("the file system reads %q", got)
	}
	if r := run(t, b.guest, sh(list)); r.stdout.String() != listed {
		t.Errorf("other users read %q, %q", &r.stdout, &r.stderr)
	}
	if got := asRoot(t, b.guest, "grep ' /mnt/files ' /proc/mounts | cut -d' ' -f3,4"); !strings.HasPrefix(got, "fuse ro,") || !strings.Contains(got, "nosuid") {
		t.Errorf("it is listed as %q", got)
	}
	b.resume(b.pause(driver.KeepMemory))
	if got := asRoot(t, b.guest, list); got != listed {
		t.Errorf("after a pause it reads %q", got)
	}
	for _, child := range b.forked(2) {
		if got := asRoot(t, child.guest, list+"; "+unmounter("-u", "/mnt/files")+"; ls -A /mnt/files"); got != listed {
			t.Errorf("in a child it reads %q", got)
		}
		hears(t, child.guest, server, "unmounted")
		over(t, child)
	}
	if got := asRoot(t, b.guest, list); got != listed {
		t.Errorf("after its children have unmounted theirs it reads %q", got)
	}
	if got := asRoot(t, b.guest, unmounter("-u", "/mnt/files")+"; mountpoint -q /mnt/files || echo over"); got != "over\n" {
		t.Errorf("unmounted, it gives %q", got)
	}
	hears(t, b.guest, server, "unmounted")
	serveFiles(t, b.guest, "root", "rw", "/mnt/files")
	b.resume(b.pause(driver.KeepDisk))
	if got := asRoot(t, b.guest, "mountpoint -q /mnt/files || echo over"); got != "over\n" {
		t.Errorf("after a new start there is %q", got)
	}
	serveFiles(t, b.guest, "root", "rw", "/mnt/files")
	over(t, b)
}

// testFileSystemRefusals: who may mount where, and that no server holds anything up but
// those who ask it.
func testFileSystemRefusals(t *testing.T, h Harness) {
	none, ok := fileBed(t, h, 0)
	if !ok {
		return
	}
	mountOver := func(folder string) string { return "python3 " + fileServerPath + " rw " + folder }
	refusedTo(t, none.guest, "root", mountOver("/mnt"), "may not mount")
	over(t, none)

	b, _ := fileBed(t, h, 2)
	for _, folder := range []string{"/", "/etc", "/usr/bin", "/proc", "/dev/shm", "/.berth"} {
		refusedTo(t, b.guest, "root", mountOver(folder), "not allowed")
	}
	refusedTo(t, b.guest, "user", mountOver("/mnt"), "not the caller's own")
	refusedTo(t, b.guest, "user", "python3 "+fileServerPath+" allow_other /home/user", "user_allow_other")
	refusedTo(t, b.guest, "root", "python3 "+fileServerPath+" suid /mnt", "unknown option")
	refusedTo(t, b.guest, "root", mountOver("/etc/passwd"), "not a directory")
	refusedTo(t, b.guest, "root", unmounter("-u", "/proc"), "not found")

	own := serveFiles(t, b.guest, "user", "rw", "/home/user/own")
	refusedTo(t, b.guest, "root", "cat /home/user/own/hello", "ermission denied") // it is not told to others
	if r := run(t, b.guest, sandbox.Command{Argv: []string{"cat", "/home/user/own/hello"}, User: "user"}); r.stdout.String() != "of the server" {
		t.Errorf("its owner reads %q, %q", &r.stdout, &r.stderr)
	}
	refusedTo(t, b.guest, "user", mountOver("/home/user/own"), "lies in what is mounted")
	// A folder on the way to it that leads elsewhere by now leads to no other mount.
	asRoot(t, b.guest, "mkdir -p /home/user/way/proc && chown -R user: /home/user/way")
	way := serveFiles(t, b.guest, "user", "rw", "/home/user/way/proc")
	refusedTo(t, b.guest, "root", mountOver("/mnt"), "may have no more")
	asRoot(t, b.guest, "mv /home/user/way /home/user/gone && ln -s / /home/user/way")
	refusedTo(t, b.guest, "user", unmounter("-u", "/home/user/way/proc"), "not found")
	asRoot(t, b.guest, "test -e /proc/1/status && rm /home/user/way && mv /home/user/gone /home/user/way && "+unmounter("-u", "/home/user/way/proc"))
	hears(t, b.guest, way, "unmounted")

	// Somebody waits for an answer that never comes, while the machine is put aside.
	stuck := sandbox.Command{Argv: []string{"cat", "/home/user/own/stuck"}, User: "user", Detach: true}
	ev, err := b.guest.Start(within(t), stuck)
	if err != nil {
		t.Fatal(err)
	}
	ev.Close()
	b.resume(b.pause(driver.KeepMemory))
	if got := asRoot(t, b.guest, "echo well"); got != "well\n" {
		t.Errorf("it says %q", got)
	}
	asRoot(t, b.guest, "pkill -KILL -x cat; "+unmounter("-uz", "/home/user/own"))
	hears(t, b.guest, own, "unmounted")
	over(t, b)
}
