package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"

	"github.com/spf13/pflag"

	"github.com/berth-dev/berth/config"
	"github.com/berth-dev/berth/dialect/cloudflare/docker"
	"github.com/berth-dev/berth/netgw"
	"github.com/berth-dev/berth/netgw/intercept"
	"github.com/berth-dev/berth/sandbox"
)

// dockerFlags are the settings of the socket through which containers are started.
type dockerFlags struct{ socket string }

func (f *dockerFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.socket, "docker-socket", "", "path of a socket that serves the calls of the Docker Engine with which workerd starts containers: they are sandboxes; whoever may open it may do all")
}

// diverting lets the gateway ask who decides over the containers' connections.
type diverting struct{ *docker.Egress }

func (d diverting) Resolve(id sandbox.ID, name string) netgw.Resolution {
	switch known, served := d.Name(id, name); {
	case served:
		return netgw.ResolveHere
	case known:
		return netgw.ResolveOutside
	}
	return netgw.ResolveRefused
}

func (d diverting) Divert(ctx context.Context, f *netgw.Flow, guest net.Conn) (bool, error) {
	return d.Egress.Divert(ctx, docker.Connection{Sandbox: f.Sandbox, Host: f.Host, Addr: f.Addr, TLS: f.TLS, HTTP: f.HTTP, Pass: f.Pass}, guest)
}

// authority certifies hosts to containers.
type authority struct{ *intercept.Proxy }

// openContainers serves the Docker Engine's socket, if one is asked for.
func (h *house) openContainers(ctx context.Context, f *serveFlags, g *ground, c docker.Config, log *slog.Logger) error {
	if f.docker.socket == "" {
		return nil
	}
	c.Egress, c.Type, c.Logger = g.egress, f.config.Containers.Type, log
	c.Forget, c.Keep, c.Orphan = f.config.Containers.Forget, f.config.Containers.Keep.Duration, f.config.Containers.Orphan.Duration
	d := docker.New(c)
	h.parts = append(h.parts, part{"containers", d.Close})
	if err := d.Open(ctx); err != nil {
		return err
	}
	l, err := listenSocket(f.docker.socket)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- d.Serve(l) }()
	h.parts = append(h.parts, part{"container socket", func() error {
		err := d.Close()
		return errors.Join(err, <-done)
	}})
	return nil
}

// listenSocket opens a socket that only its owner may use, in the place of one that
// a server has left.
func listenSocket(path string) (net.Listener, error) {
	fail := func(err error) error {
		return &sandbox.Error{Op: "listen on " + path, Kind: sandbox.Invalid, Err: err, Hint: "give --docker-socket the path of a socket in a folder that is there"}
	}
	fi, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return nil, fail(err)
	case fi.Mode()&os.ModeSocket == 0:
		return nil, fail(errors.New("there is something else"))
	default:
		if c, err := net.Dial("unix", path); err == nil {
			c.Close()
			return nil, &sandbox.Error{Op: "listen on " + path, Kind: sandbox.Conflict, Err: errors.New("another program uses it"), Hint: "stop it, or choose another path"}
		}
		if err := os.Remove(path); err != nil {
			return nil, fail(err)
		}
	}
	l, err := listenPrivately(path)
	if err != nil {
		return nil, fail(err)
	}
	return l, nil
}

// configure takes from the file what no flag says.
func (f *dockerFlags) configure(changed bool, c config.Containers) {
	if !changed && c.Socket != "" {
		f.socket = c.Socket
	}
}
