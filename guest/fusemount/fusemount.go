// Package fusemount mounts FUSE file systems for programs that may not mount.
//
// No program of a sandbox may change its mounts. Where the sandbox allows it, the guest
// does so for them, and for FUSE alone: libraries execute a program called fusermount when
// mount(2) is refused, which here asks the guest over a socket. The guest mounts over a
// folder that belongs to the caller, gives the connection to the file system's server back,
// and unmounts what it has mounted, for the same caller or for root.
package fusemount

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// address is the socket of the guest's, in no file system: nothing can lie in its way.
const address = "@berth-fuse"

// device is where the kernel's side of a file system is opened, and deviceNumber which one it
// must be.
const device = "/dev/fuse"

var deviceNumber = unix.Mkdev(10, 229)

// Bounds on what callers send, and on how long they take.
const (
	maxRequest = 16 << 10
	maxCallers = 16
	callTime   = 10 * time.Second
)

var errStuck = errors.New("another file system of this sandbox is waited for, and its server does not answer: end the server, or what waits for it")

// request asks for a mount, with the folder's descriptor beside it, or for its end.
type request struct {
	Unmount bool   `json:"unmount,omitempty"`
	Path    string `json:"path,omitempty"` // of what is to be unmounted; absolute, without links but for its last name
	All     bool   `json:"all,omitempty"`  // unmount whatever is the caller's, for root all there is, and not Path
	Lazy    bool   `json:"lazy,omitempty"` // unmount although it is in use
	Options string `json:"options,omitempty"`
}

// answer says what went wrong; a mount's success has the connection's descriptor beside it.
type answer struct {
	Error string `json:"error,omitempty"`
}

// Server mounts for others. Its methods may be called from many goroutines.
type Server struct {
	mu       sync.Mutex // held for no call that a file system's server could hold up
	most     int
	listener *net.UnixListener // nil while nobody may ask
	served   sync.WaitGroup
	turn     chan struct{} // full while somebody looks at the mounts, or changes them

	mounts []*mount // of whoever has the turn
}

// mount is one that is there. It is found again by its folder's own folder, whatever that is
// called by then.
type mount struct {
	path   string
	parent *os.File
	name   string
	uid    uint32 // whose it is
}

// Allow lets up to most file systems be mounted at once; 0 lets nobody ask. Those that
// are there stay.
func (s *Server) Allow(most int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.most = most
	switch {
	case most > 0 && s.listener == nil:
		l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: address, Net: "unixpacket"})
		if err != nil {
			return fmt.Errorf("let file systems be mounted: %w", err)
		}
		if s.turn == nil {
			s.turn = make(chan struct{}, 1)
		}
		s.listener = l
		s.served.Go(func() { s.serve(l) })
	case most <= 0 && s.listener != nil:
		err := s.listener.Close()
		s.listener = nil
		return err
	}
	return nil
}

// begin waits for the turn, which end gives up. A file system's server may hold up whoever has
// it, and he those who come after him, each for as long as a call may take.
func (s *Server) begin() (end func(), err error) {
	late := time.NewTimer(callTime)
	defer late.Stop()
	select {
	case s.turn <- struct{}{}:
		return func() { <-s.turn }, nil
	case <-late.C:
		return nil, errStuck
	}
}

// allowed is how many file systems may be mounted at once.
func (s *Server) allowed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.most
}

// Close lets nobody ask any more, and waits for those who have.
func (s *Server) Close() error {
	err := s.Allow(0)
	s.served.Wait()
	return err
}

// serve answers until the listener is closed.
func (s *Server) serve(l *net.UnixListener) {
	places := make(chan struct{}, maxCallers)
	for {
		c, err := l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors or memory, which passes
			time.Sleep(50 * time.Millisecond)
			continue
		}
		places <- struct{}{}
		s.served.Go(func() {
			defer func() { <-places }()
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(callTime))
			s.call(c)
		})
	}
}

// call answers one caller.
func (s *Server) call(c *net.UnixConn) {
	r, folder, who, err := receive(c)
	if folder != nil {
		defer folder.Close()
	}
	if err == nil && r.Unmount {
		err = s.unmount(r, who)
	}
	if err != nil || r.Unmount {
		_ = send(c, err, nil) // a caller who has gone has heard enough
		return
	}
	m, server, err := s.mount(r, folder, who)
	if err != nil {
		_ = send(c, err, nil)
		return
	}
	defer server.Close()
	if send(c, nil, server) != nil {
		s.takeBack(m)
	}
}

// receive reads a request, the folder that came with it and who sent it. That is said by the
// sender and checked by the kernel: SO_PEERCRED names the listener's own user to a listener
// in a sandbox.
func receive(c *net.UnixConn) (r request, folder *os.File, who *unix.Ucred, err error) {
	if err := passCredentials(c); err != nil {
		return r, nil, nil, err
	}
	b, beside := make([]byte, maxRequest), make([]byte, unix.CmsgSpace(4*4)+unix.CmsgSpace(unix.SizeofUcred))
	n, m, flags, _, err := c.ReadMsgUnix(b, beside)
	if err != nil {
		return r, nil, nil, err
	}
	files, who, err := parseBeside(beside[:m])
	switch {
	case err != nil:
	case flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 || len(files) > 1:
		err = errors.New("the request is too long")
	case who == nil:
		err = errors.New("the request does not say whose it is")
	default:
		err = json.Unmarshal(b[:n], &r)
	}
	if err != nil || len(files) == 0 {
		closeAll(files)
		return r, nil, who, err
	}
	return r, files[0], who, nil
}

// passCredentials has what comes over a connection say whose it is.
func passCredentials(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	err = raw.Control(func(fd uintptr) { serr = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1) })
	return errors.Join(err, serr)
}

// parseBeside reads the descriptors and the sender that came beside a message.
func parseBeside(b []byte) (files []*os.File, who *unix.Ucred, err error) {
	all, err := unix.ParseSocketControlMessage(b)
	if err != nil {
		return nil, nil, err
	}
	for i := range all {
		if all[i].Header.Level != unix.SOL_SOCKET {
			continue
		}
		switch all[i].Header.Type {
		case unix.SCM_CREDENTIALS:
			if who, err = unix.ParseUnixCredentials(&all[i]); err != nil {
				closeAll(files)
				return nil, nil, err
			}
		case unix.SCM_RIGHTS:
			fds, err := unix.ParseUnixRights(&all[i])
			if err != nil {
				closeAll(files)
				return nil, nil, err
			}
			for _, fd := range fds {
				unix.CloseOnExec(fd)
				files = append(files, os.NewFile(uintptr(fd), "given"))
			}
		}
	}
	return files, who, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// send tells the caller what came of its request.
func send(c *net.UnixConn, failed error, given *os.File) error {
	var a answer
	if failed != nil {
		a.Error = failed.Error()
	}
	b, err := json.Marshal(a)
	if err != nil {
		return err
	}
	var rights []byte
	if given != nil {
		rights = unix.UnixRights(int(given.Fd()))
	}
	_, _, err = c.WriteMsgUnix(b, rights, nil)
	return err
}
