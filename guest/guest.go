// Package guest is the inside of a sandbox: it runs processes and reaches files
// for the host, which alone may speak to it.
//
// A Guest serves the contract of package guestapi on one listener. It trusts
// the host that knows the secret, and nothing else in the sandbox.
package guest

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"connectrpc.com/connect"

	"github.com/berth-dev/berth/guest/fusemount"
	"github.com/berth-dev/berth/guest/kernel"
	"github.com/berth-dev/berth/guestapi"
	"github.com/berth-dev/berth/guestapi/v1/guestv1connect"
	"github.com/berth-dev/berth/refusal"
)

// DefaultLogBytes is what is kept of each output of each process.
const DefaultLogBytes = 1 << 20

// Config says who the guest is and where it works.
type Config struct {
	SandboxID string
	Version   string // of this build
	Secret    guestapi.Secret
	Peer      string // the only address that may connect; "" admits any

	// Scratch confines files to a folder and starts processes as the current
	// user; it is for tests and isolates nothing. "" means that the whole file
	// system is the sandbox, and that the guest may become any user.
	Scratch string

	// Init says that this process is PID 1: it then reaps every orphan, and no
	// other part of the program may wait for children.
	Init bool

	// Rename makes the system around the guest that of another sandbox: see
	// guestv1.Identity. It may be nil.
	Rename func(sandboxID, hostname string) error

	FuseMounts int // FUSE file systems that programs may have mounted at once; see package fusemount

	Env      map[string]string // given to every process, beneath what a request sets
	LogBytes int               // kept of each output; 0 means DefaultLogBytes
}

// Guest is one guest. Its methods may be called from many goroutines.
type Guest struct {
	config   Config
	port     uint16 // that it listens on itself
	boot     time.Time
	self     identity
	entrance *door
	files    tree
	procs    *table
	shells   *sessions
	watches  *watches
	terms    *terminals
	kernels  *kernel.Set
	mounts   fusemount.Server
}

// New makes a guest that does nothing until Serve.
func New(c Config) *Guest {
	if c.LogBytes <= 0 {
		c.LogBytes = DefaultLogBytes
	}
	return &Guest{config: c, boot: time.Now(), self: identity{id: c.SandboxID}}
}

// Serve answers the host on l until ctx ends; then it kills every process that
// it started, closes l and returns nil. It is called once.
func (g *Guest) Serve(ctx context.Context, l net.Listener) error {
	files, err := openTree(g.config.Scratch)
	if err != nil {
		l.Close()
		return err
	}
	defer files.close()
	g.files = files

	kids, stopReaping := newChildren(g.config.Init)
	defer stopReaping()
	g.procs = newTable(kids, g.config.LogBytes)
	g.shells = newSessions(g)

	g.terms = &terminals{kids: kids}
	g.kernels = kernel.NewSet()

	g.watches = newWatches(g)
	if err := g.mounts.Allow(g.config.FuseMounts); err != nil {
		l.Close()
		return err
	}

	g.port = ownPort(l)
	g.entrance = newDoor(l, g.config.Secret, g.config.Peer)
	server := &http.Server{
		Handler:           refusal.Heard(lanes(ctx, g.routes())),
		Protocols:         new(http.Protocols),
		ConnContext:       withConn,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		ReadHeaderTimeout: 30 * time.Second,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          log.New(io.Discard, "", 0), // a broken connection is the host's to notice
	}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)

	unhook := context.AfterFunc(ctx, func() { server.Close() })
	defer unhook()
	err = server.Serve(g.entrance)
	g.entrance.Close()
	err = errors.Join(err, g.mounts.Close())
	g.watches.close()
	g.terms.close()
	g.kernels.Close()
	g.shells.close() // their commands are processes
	g.procs.close()
	if ctx.Err() != nil && (errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed)) {
		return nil
	}
	return err
}

// maxStreams bounds the calls that one connection carries at once.
const maxStreams = 4096

// maxMessage bounds one request: arguments and environment of 1 MiB each fit.
const maxMessage = 4 << 20

func (g *Guest) routes() http.Handler {
	mux := http.NewServeMux()
	path, calls := guestv1connect.NewGuestHandler(&service{g},
		connect.WithReadMaxBytes(maxMessage),
		connect.WithCompression("gzip", nil, nil), // the link is local
	)
	mux.Handle(path, calls)
	mux.Handle(guestv1connect.GuestStartProcedure, gather(calls))
	mux.Handle(guestv1connect.NewFilesHandler(&fileService{g},
		connect.WithReadMaxBytes(maxMessage), connect.WithCompression("gzip", nil, nil)))
	mux.Handle(guestv1connect.NewTerminalsHandler(&terminalService{g},
		connect.WithReadMaxBytes(maxMessage), connect.WithCompression("gzip", nil, nil)))
	mux.Handle(guestv1connect.NewSessionsHandler(g.shells,
		connect.WithReadMaxBytes(maxMessage), connect.WithCompression("gzip", nil, nil)))
	mux.Handle(guestv1connect.NewKernelsHandler(&kernelService{g},
		connect.WithReadMaxBytes(maxMessage), connect.WithCompression("gzip", nil, nil)))
	mux.Handle(guestv1connect.NewProcessesHandler(&processService{g},
		connect.WithReadMaxBytes(maxMessage), connect.WithCompression("gzip", nil, nil)))
	mux.Handle(guestv1connect.NewWatcherHandler(&watchService{g},
		connect.WithReadMaxBytes(maxMessage), connect.WithCompression("gzip", nil, nil)))
	mux.Handle(guestv1connect.NewPortsHandler(&portService{g},
		connect.WithReadMaxBytes(maxMessage), connect.WithCompression("gzip", nil, nil)))
	mux.Handle(guestv1connect.NewIdentityHandler(&identityService{g},
		connect.WithReadMaxBytes(maxMessage), connect.WithCompression("gzip", nil, nil)))
	mux.HandleFunc("GET /files", g.readFile)
	mux.HandleFunc("PUT /files", g.writeFile)
	mux.HandleFunc("PATCH /files", g.patchFile)
	mux.HandleFunc("GET /archive", g.packFolder)
	mux.HandleFunc("PUT /archive", g.unpackFolder)
	mux.HandleFunc("GET /tunnel", g.tunnel)
	return mux
}

// scratch reports whether the guest works on a folder of the host's.
func (g *Guest) scratch() bool { return g.config.Scratch != "" }

// pid is the guest's own process id.
func pid() int { return os.Getpid() }
