package kernel

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Process is a kernel's process.
type Process interface {
	PID() int
	Done() <-chan struct{} // closed when it has ended
	How() string           // it ended, for people; asked after that
	Interrupt() error      // SIGINT to its group
	Ports() []uint16       // that it listens on now
	Kill()                 // all that descends from it too
}

// Starter starts the kernels of one context.
type Starter interface {
	// Dir makes a new folder that only the kernel's user may enter, and in it the
	// file "connection.json" that content gives for it.
	Dir(content func(dir string) ([]byte, error)) (dir string, err error)
	Start(argv []string, env map[string]string) (Process, error)
	Remove(dir string) // and what is in it
}

// The channels of a kernel.
const (
	shell = iota
	iopub
	control
	channels
)

var channelKinds = [channels]string{"DEALER", "SUB", "DEALER"}

const (
	startTime = 2 * time.Minute // for a kernel to be ready
	dialPause = 10 * time.Millisecond
	nudge     = 500 * time.Millisecond // between questions to a kernel that starts
	arrivals  = 256                    // messages that wait for the run's loop
)

// interpreter is a kernel that runs.
type interpreter struct {
	spec    Spec
	process Process
	starter Starter
	dir     string
	key     signer
	session string
	sockets [channels]*socket
	in      chan arrival
	gone    chan struct{}  // closed by close
	readers sync.WaitGroup // they end when the sockets do
}

// arrival is what came on a channel.
type arrival struct {
	from int
	msg  message
	lost bool  // a message was too large, or not the kernel's
	err  error // the channel is of no more use
}

// connection is the file that tells a kernel where to listen.
type connection struct {
	Transport string `json:"transport"`
	IP        string `json:"ip"`
	Shell     int    `json:"shell_port"`
	IOPub     int    `json:"iopub_port"`
	Stdin     int    `json:"stdin_port"`
	Control   int    `json:"control_port"`
	Heartbeat int    `json:"hb_port"`
	Key       string `json:"key"`
	Scheme    string `json:"signature_scheme"`
	Name      string `json:"kernel_name"`
}

// launch starts a kernel and returns once it answers. claim is told of the ports that it
// listens on by itself.
func launch(ctx context.Context, spec Spec, starter Starter, claim func([]uint16)) (_ *interpreter, err error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	k := &interpreter{spec: spec, starter: starter, key: signer(rand.Text()), session: rand.Text(),
		in: make(chan arrival, arrivals), gone: make(chan struct{})}
	where := connection{Transport: "ipc", Shell: 1, IOPub: 2, Stdin: 3, Control: 4, Heartbeat: 5,
		Key: string(k.key), Scheme: "hmac-sha256", Name: spec.Name}
	if spec.TCP {
		if err := where.takePorts(); err != nil {
			return nil, err
		}
		claim([]uint16{uint16(where.Shell), uint16(where.IOPub), uint16(where.Stdin), uint16(where.Control), uint16(where.Heartbeat)})
	}
	k.dir, err = starter.Dir(func(dir string) ([]byte, error) {
		if !spec.TCP {
			where.IP = filepath.Join(dir, "s")
		}
		return json.Marshal(where)
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			k.close()
		}
	}()
	argv := make([]string, len(spec.Argv))
	for i, a := range spec.Argv {
		argv[i] = strings.ReplaceAll(a, "{connection_file}", filepath.Join(k.dir, "connection.json"))
	}
	if k.process, err = starter.Start(argv, spec.Env); err != nil {
		return nil, err
	}
	if err = k.connect(ctx, where); err != nil {
		return nil, err
	}
	if err = k.awaitReady(ctx); err == nil {
		claim(k.process.Ports()) // no code has run yet: they are the kernel's own
		if spec.Prelude != "" && !k.quietly(spec.Prelude) {
			err = errors.New("the kernel did not take its prelude")
		}
	}
	return k, err
}

// takePorts finds ports of the loopback that are free now.
func (c *connection) takePorts() error {
	c.Transport, c.IP = "tcp", "127.0.0.1"
	for _, port := range []*int{&c.Shell, &c.IOPub, &c.Stdin, &c.Control, &c.Heartbeat} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer l.Close() // all are held until all are known
		*port = l.Addr().(*net.TCPAddr).Port
	}
	return nil
}

func (c *connection) address(port int) (network, address string) {
	if c.Transport == "tcp" {
		return "tcp", fmt.Sprintf("%s:%d", c.IP, port)
	}
	return "unix", fmt.Sprintf("%s-%d", c.IP, port)
}

// connect opens the channels, and begins to read them.
func (k *interpreter) connect(ctx context.Context, where connection) error {
	for i, port := range [channels]int{where.Shell, where.IOPub, where.Control} {
		network, address := where.address(port)
		s, err := k.dial(ctx, network, address, channelKinds[i])
		if err != nil {
			return err
		}
		k.sockets[i] = s
	}
	for i := range k.sockets {
		k.readers.Go(func() { k.read(i) })
	}
	return nil
}

// dial tries until the kernel listens, has ended or has had its time.
func (k *interpreter) dial(ctx context.Context, network, address, kind string) (*socket, error) {
	var d net.Dialer
	for {
		conn, err := d.DialContext(ctx, network, address)
		if err == nil {
			return newSocket(conn, kind)
		}
		select {
		case <-time.After(dialPause):
		case <-k.process.Done():
			return nil, errors.New("the kernel " + k.process.How())
		case <-ctx.Done():
			return nil, fmt.Errorf("the kernel does not listen: %w", context.Cause(ctx))
		}
	}
}

// read passes on what comes on a channel, until that closes.
func (k *interpreter) read(channel int) {
	for {
		a := arrival{from: channel}
		parts, err := k.sockets[channel].Recv()
		switch {
		case errors.Is(err, errTooLarge):
			a.lost = true
		case err != nil:
			a.err = err
		default:
			a.msg, err = k.key.decode(parts)
			a.lost = err != nil
		}
		select {
		case k.in <- a:
		case <-k.gone:
			return
		}
		if a.err != nil {
			return
		}
	}
}

// awaitReady asks until the kernel has answered, and has been heard to publish:
// from then on nothing that it publishes is missed.
func (k *interpreter) awaitReady(ctx context.Context) error {
	again := time.NewTicker(nudge)
	defer again.Stop()
	if _, err := k.request(shell, "kernel_info_request", struct{}{}); err != nil {
		return err
	}
	answered, heard := false, false
	for !answered || !heard {
		select {
		case a := <-k.in:
			if a.err != nil {
				return k.broken(a.err)
			}
			answered = answered || a.from == shell && a.msg.Type == "kernel_info_reply"
			heard = heard || a.from == iopub && a.msg.Type == "status"
		case <-again.C:
			if _, err := k.request(shell, "kernel_info_request", struct{}{}); err != nil {
				return err
			}
		case <-k.process.Done():
			return errors.New("the kernel " + k.process.How())
		case <-ctx.Done():
			return fmt.Errorf("the kernel does not answer: %w", context.Cause(ctx))
		}
	}
	return nil
}

// broken is the error of a kernel whose channel has ended: most have ended
// themselves, and how is soon known.
func (k *interpreter) broken(err error) error {
	late := time.NewTimer(time.Second)
	defer late.Stop()
	select {
	case <-k.process.Done():
		return errors.New("the kernel " + k.process.How())
	case <-late.C:
		return fmt.Errorf("the kernel closed its connection: %w", err)
	}
}

// request sends one, and returns the id that what answers it has as its parent.
func (k *interpreter) request(channel int, kind string, content any) (id string, err error) {
	id = rand.Text()
	parts, err := k.key.encode(id, k.session, kind, content)
	if err == nil {
		err = k.sockets[channel].Send(parts)
	}
	return id, err
}

// interrupt asks the kernel to break off what it runs.
func (k *interpreter) interrupt() error {
	if k.spec.ByName {
		_, err := k.request(control, "interrupt_request", struct{}{})
		return err
	}
	return k.process.Interrupt()
}

// close ends the kernel and all that it left.
func (k *interpreter) close() {
	close(k.gone)
	if k.process != nil {
		k.process.Kill()
		<-k.process.Done()
	}
	for _, s := range k.sockets {
		if s != nil {
			s.Close()
		}
	}
	k.readers.Wait()
	k.starter.Remove(k.dir)
}
