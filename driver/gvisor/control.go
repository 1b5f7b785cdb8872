package gvisor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/control/client"
	"gvisor.dev/gvisor/pkg/urpc"

	"github.com/berth-dev/berth/sandbox"
)

// control connects to the engine of a machine. A connection carries one call at
// a time.
func (p place) control(id sandbox.ID) (*urpc.Client, error) {
	// The path of a socket has little room, a descriptor's is always short.
	socket, err := os.OpenFile(filepath.Join(p.engine(), "runsc-"+string(id)+".sock"), unix.O_PATH, 0)
	if err != nil {
		return nil, fmt.Errorf("open control socket: %w", err)
	}
	defer socket.Close()
	c, err := client.ConnectTo(fmt.Sprintf("/proc/self/fd/%d", socket.Fd()))
	if err != nil {
		return nil, fmt.Errorf("open control socket: %w", err)
	}
	return c, nil
}

// call makes one call to the engine of a machine.
func (p place) call(id sandbox.ID, method string, arg any) error {
	return p.callFor(id, method, arg, nil)
}

// callFor is call with an answer, which may be nil.
func (p place) callFor(id sandbox.ID, method string, arg, answer any) error {
	c, err := p.control(id)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Call(method, arg, answer); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	return nil
}

// callCtx is call for as long as ctx lasts. A call that is given up is ended by
// the end of its engine, which the caller sees to.
func (p place) callCtx(ctx context.Context, id sandbox.ID, method string, arg any) error {
	done := make(chan error, 1)
	go func() { done <- p.call(id, method, arg) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// standing is a machine that stands still. It goes on when this process ends.
type standing struct {
	socket net.Conn
	ended  chan error
}

// stand makes a machine stand still until release. The end of ctx gives up
// waiting for that.
func (p place) stand(ctx context.Context, id sandbox.ID) (*standing, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "stand"), os.NewFile(uintptr(pair[1]), "stand")
	socket, err := net.FileConn(ours)
	ours.Close()
	if err != nil {
		theirs.Close()
		return nil, err
	}
	s := &standing{socket: socket, ended: make(chan error, 1)}
	go func() { // ends when the socket is closed or the engine has ended
		defer socket.Close()
		defer theirs.Close()
		s.ended <- p.call(id, "containerManager.Stand", &struct{ urpc.FilePayload }{urpc.FilePayload{Files: []*os.File{theirs}}})
	}()
	stop := context.AfterFunc(ctx, func() { socket.Close() })
	_, err = socket.Read(make([]byte, 1))
	if err == nil && stop() {
		return s, nil
	}
	err = errors.Join(s.release(), context.Cause(ctx), err)
	return nil, fmt.Errorf("stop its tasks: %w", err)
}

// release lets the machine go on and returns when it does.
func (s *standing) release() error {
	s.socket.Close()
	return <-s.ended
}
