package guest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/berth-dev/berth/guest/kernel"
	guestv1 "github.com/berth-dev/berth/guestapi/v1"
)

// kernelsDir holds the folders of kernels, which their users may not replace.
const kernelsDir = "/run/berth/kernels"

// kernelFolders are where kernelspecs lie, beside the one in a user's home.
var kernelFolders = []string{"/usr/local/share/jupyter/kernels", "/usr/share/jupyter/kernels"}

// lastOutput is how much of what a kernel prints of itself is kept, in bytes.
const lastOutput = 2 << 10

// kernelStarter starts the kernels of one context.
type kernelStarter struct {
	guest *Guest
	asked *guestv1.CreateCodeContextRequest
}

// folders are where the kernelspecs of a user lie, the user's own first.
func (g *Guest) kernelFolders(user string) ([]string, error) {
	who, err := g.runAs(&plan{}, user)
	if err != nil {
		return nil, err
	}
	all := append([]string{filepath.Join(who.home, ".local/share/jupyter/kernels")}, kernelFolders...)
	for i, f := range all {
		all[i] = filepath.Join("/", g.config.Scratch, f)
	}
	return all, nil
}

// kernelOptions settles what a context begins with.
func (g *Guest) kernelOptions(r *guestv1.CreateCodeContextRequest) (kernel.Options, error) {
	folders, err := g.kernelFolders(r.User)
	if err != nil {
		return kernel.Options{}, err
	}
	who, err := g.runAs(&plan{}, r.User)
	if err != nil {
		return kernel.Options{}, err
	}
	env, err := g.environment(who, r.Env)
	if err != nil {
		return kernel.Options{}, err
	}
	p := &plan{}
	if err := p.within(string(r.Cwd), who.home); err != nil {
		return kernel.Options{}, err
	}
	if err := g.enter(p); err != nil {
		return kernel.Options{}, err
	}
	if info, err := g.files.stat(p.cwd); err != nil || !info.IsDir() {
		return kernel.Options{}, refuse(notFound, "make the folder first, or leave cwd out", "no folder %.200q to start in", p.cwd)
	}
	return kernel.Options{Name: r.Name, Language: r.Language, Folders: folders, Env: env, Cwd: p.cwd, User: strings.ToValidUTF8(who.name, "\uFFFD"),
		Starter: &kernelStarter{g, r}}, nil
}

// Dir makes a kernel's folder: the guest's until all is in it, then the user's.
func (s *kernelStarter) Dir(content func(dir string) ([]byte, error)) (dir string, err error) {
	above := kernelsDir
	if s.guest.scratch() {
		above = os.TempDir() // a path of a socket must be short
	} else if err := os.MkdirAll(above, 0o711); err != nil {
		return "", err
	}
	if dir, err = os.MkdirTemp(above, "k"); err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			os.RemoveAll(dir)
		}
	}()
	b, err := content(dir)
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "connection.json")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		return "", err
	}
	var p plan
	if _, err := s.guest.runAs(&p, s.asked.User); err != nil {
		return "", err
	}
	for _, path := range []string{file, dir} {
		if p.credential == nil {
			break
		}
		if err := os.Chown(path, int(p.credential.Uid), int(p.credential.Gid)); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// Remove removes a kernel's folder. What is left of it is nobody's concern: the
// next one has another name.
func (s *kernelStarter) Remove(dir string) {
	if dir != "" {
		os.RemoveAll(dir)
	}
}

// Start starts a kernel's program, with the environment of its kernelspec beneath
// the context's.
func (s *kernelStarter) Start(argv []string, env map[string]string) (kernel.Process, error) {
	r := &guestv1.StartRequest{Cwd: s.asked.Cwd, User: s.asked.User}
	for _, a := range argv {
		r.Argv = append(r.Argv, []byte(a))
	}
	for k, v := range env {
		r.Env = append(r.Env, []byte(k+"="+v))
	}
	r.Env = append(r.Env, s.asked.Env...)
	p, err := s.guest.plan(r)
	if err != nil {
		return nil, errors.New(textOf(err))
	}
	k, err := s.guest.startKernel(p)
	if err != nil {
		return nil, err // and no process: a nil of kernelProcess would be one
	}
	return k, nil
}

func (g *Guest) startKernel(p *plan) (*kernelProcess, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	var ends [2]int
	if err := syscall.Pipe2(ends[:], syscall.O_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("pipe2", err)
	}
	defer syscall.Close(ends[1])
	if err := syscall.SetNonblock(ends[0], true); err != nil {
		syscall.Close(ends[0])
		return nil, os.NewSyscallError("set non-blocking", err)
	}
	out := os.NewFile(uintptr(ends[0]), "pipe")
	k, err := g.procs.kids.start(p.path, p.argv, &syscall.ProcAttr{Dir: p.dir, Env: p.env,
		Files: []uintptr{null.Fd(), uintptr(ends[1]), uintptr(ends[1])},
		Sys:   &syscall.SysProcAttr{Setsid: true, Credential: p.credential}})
	if err != nil {
		out.Close()
		return nil, errors.New(textOf(p.whyNot(err)))
	}
	kp := &kernelProcess{guest: g, kids: g.procs.kids, child: k, out: out, quiet: make(chan struct{})}
	go kp.listen() // until the kernel has ended, and a moment more
	return kp, nil
}

// kernelProcess is a kernel's process, and the end of what it printed.
type kernelProcess struct {
	guest *Guest
	kids  *children
	child *child
	out   *os.File
	quiet chan struct{} // closed when nothing more is read

	mu   sync.Mutex
	tail []byte
}

// listen keeps the end of what the kernel itself prints.
func (p *kernelProcess) listen() {
	defer close(p.quiet)
	defer p.out.Close()
	go func() { // what a kernel left running may hold the pipe for ever
		<-p.child.done
		p.out.SetReadDeadline(time.Now().Add(linger))
	}()
	buf := make([]byte, 4<<10)
	for {
		n, err := p.out.Read(buf)
		p.mu.Lock()
		p.tail = append(p.tail, buf[:n]...)
		p.tail = p.tail[max(0, len(p.tail)-lastOutput):]
		p.mu.Unlock()
		if errors.Is(err, io.EOF) || err != nil {
			return
		}
	}
}

func (p *kernelProcess) PID() int              { return p.child.pid }
func (p *kernelProcess) Done() <-chan struct{} { return p.child.done }
func (p *kernelProcess) Kill()                 { p.kids.killTree(p.child) }

// Ports are those that the kernel's own process listens on.
func (p *kernelProcess) Ports() (all []uint16) {
	var sockets []listening
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		sockets = append(sockets, readSockets(table)...)
	}
	held := p.guest.holders(sockets)
	for _, l := range sockets {
		if held[l.inode] == p.child.pid {
			all = append(all, l.at.Port())
		}
	}
	return all
}

func (p *kernelProcess) Interrupt() error {
	_, err := p.kids.signal(p.child, syscall.SIGINT)
	return err
}

// How says how the kernel ended, and what it printed last.
func (p *kernelProcess) How() string {
	<-p.quiet // soon after the end
	how := fmt.Sprintf("ended with exit code %d", p.child.status.ExitStatus())
	if p.child.status.Signaled() {
		how = "was killed by " + signalName(p.child.status.Signal())
		if p.child.status.Signal() == syscall.SIGKILL {
			how += " (the sandbox's memory may have been full)"
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if said := strings.TrimSpace(strings.ToValidUTF8(string(p.tail), "\uFFFD")); said != "" && !p.child.status.Signaled() {
		how += "; it said: " + said
	}
	return how
}
