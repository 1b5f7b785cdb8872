package docker

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// sessionLabel is on what does not outlive a session of the program that runs workerd:
// the names of containers hold the session too, so nobody comes back to them after it.
const sessionLabel = "dev.workerd.session"

// process is one of the host. Its number alone may be another's later.
type process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // in ticks since the host's boot
}

// owner is who has a container run: workerd, and the program that runs it.
type owner struct {
	Self   process `json:"self"`
	Parent process `json:"parent,omitzero"`
}

// lives reports whether an owner may still come to a container. In a session, which
// outlives workerd's restarts, the program that runs workerd decides too.
func (o *owner) lives(session bool) bool { return o.Self.lives() || session && o.Parent.lives() }

func (p process) lives() bool {
	now, _, err := processOf(p.PID)
	return err == nil && now == p
}

// processOf returns a process that lives, and its parent's number.
func processOf(pid int) (p process, parent int, err error) {
	if pid <= 1 { // none, or what never ends
		return process{}, 0, os.ErrProcessDone
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, 0, err
	}
	// The program's name, in parentheses, may hold anything. Of what follows, the first
	// is the state, the second the parent and the twentieth the start.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return process{}, 0, os.ErrProcessDone
	}
	if parent, err = strconv.Atoi(fields[1]); err != nil {
		return process{}, 0, err
	}
	start, err := strconv.ParseUint(fields[19], 10, 64)
	return process{PID: pid, Start: start}, parent, err
}

type ownerKey struct{}

// withOwner notes who is at the other end of a connection, for who asks.
func withOwner(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, ownerKey{}, sync.OnceValue(func() *owner { return peerOf(c) }))
}

// ownerOf is who makes a request; nil if that cannot be known.
func ownerOf(ctx context.Context) *owner {
	if find, ok := ctx.Value(ownerKey{}).(func() *owner); ok {
		return find()
	}
	return nil
}

// peerOf is the process at the other end of a socket.
func peerOf(c net.Conn) *owner {
	socket, ok := c.(*net.UnixConn)
	if !ok {
		return nil
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil
	}
	var peer *unix.Ucred
	var uerr error
	if err := raw.Control(func(fd uintptr) { peer, uerr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil || uerr != nil {
		return nil
	}
	self, parent, err := processOf(int(peer.Pid))
	if err != nil {
		return nil
	}
	o := &owner{Self: self}
	if above, _, err := processOf(parent); err == nil {
		o.Parent = above
	}
	return o
}

// own notes who has a container run now, if that is another than before.
func (d *Dialect) own(ctx context.Context, name string) error {
	o := ownerOf(ctx)
	if o == nil || !strings.HasPrefix(name, workerdPrefix) {
		return nil
	}
	if c, err := d.load(ctx, name); err != nil || c.Owner != nil && *c.Owner == *o {
		return nil // who is to be told of the error asks for the same
	}
	unlock, err := d.names.lock(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	c, err := d.load(ctx, name)
	if err != nil {
		return nil
	}
	c.Owner = o
	return d.save(ctx, c)
}
