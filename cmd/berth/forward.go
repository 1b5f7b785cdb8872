package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/client"
	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/tunnel"
)

// maxForwarded bounds the connections of one forwarding that are open at once.
const maxForwarded = 512

func (p *program) forwardCommand() *cobra.Command {
	var address string
	cmd := &cobra.Command{
		Use:   "forward ID [LOCAL:]PORT…",
		Short: "Reach ports of a sandbox at ports of this machine",
		Long: "Listen on ports of this machine and carry each connection to the same port of a\n" +
			"sandbox, or PORT, through the server, until it is interrupted. Any protocol over\n" +
			"TCP passes, and servers that listen on the sandbox's 127.0.0.1 alone are reached.\n" +
			"Prints one line a port: the address it listens on. LOCAL 0 picks a free port.",
		Example:           "  berth forward $ID 8080\n  berth forward $ID 15432:5432 6379",
		Args:              cobra.MinimumNArgs(2),
		ValidArgsFunction: p.completeOneSandbox,
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.forward(cmd.Context(), args[0], address, args[1:])
		},
	}
	cmd.Flags().StringVar(&address, "address", "127.0.0.1", "of this machine to listen on")
	return cmd
}

// forwarding is one port that is carried.
type forwarding struct {
	Address string `json:"address"` // listened on
	Port    int    `json:"port"`    // inside
	l       net.Listener
}

func (p *program) forward(ctx context.Context, id, address string, ports []string) error {
	c, id, err := p.connectTo(id)
	if err != nil {
		return err
	}
	if _, err := c.Get(ctx, id); err != nil {
		return err
	}
	all, err := listenLocal(ctx, address, ports)
	if err != nil {
		return err
	}
	if err := p.printForwards(all, id); err != nil {
		return err
	}
	var under sync.WaitGroup
	defer under.Wait()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for _, f := range all {
		stop := context.AfterFunc(ctx, func() { f.l.Close() })
		defer stop()
		under.Go(func() { cancel(p.acceptForwards(ctx, c, id, f, &under)) })
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// listenLocal opens every port, or none.
func listenLocal(ctx context.Context, address string, ports []string) (all []forwarding, err error) {
	defer func() {
		if err != nil {
			for _, f := range all {
				f.l.Close()
			}
		}
	}()
	for _, text := range ports {
		local, inside, both := strings.Cut(text, ":")
		if !both {
			inside = local
		}
		port, err := parsePort(inside)
		if err != nil {
			return all, err
		}
		if n, err := strconv.ParseUint(local, 10, 16); err != nil || n == 0 && !both {
			return all, usage("a port is a number from 1 to 65535, LOCAL 0 too", "%.40q is not a port", local)
		}
		l, err := listen(ctx, net.JoinHostPort(address, local))
		if err != nil {
			return all, &sandbox.Error{Err: err, Hint: "choose another one with LOCAL:" + inside + "; LOCAL 0 picks a free one"}
		}
		all = append(all, forwarding{l.Addr().String(), port, l})
	}
	return all, nil
}

func (p *program) printForwards(all []forwarding, id string) error {
	if p.json {
		return writeJSON(p.out, all)
	}
	for _, f := range all {
		fmt.Fprintf(p.err, "port %d of %s is at ", f.Port, id)
		if _, err := fmt.Fprintln(p.out, f.Address); err != nil {
			return err
		}
	}
	return nil
}

// acceptForwards carries each connection of one port until the listener closes.
func (p *program) acceptForwards(ctx context.Context, c *client.Client, id string, f forwarding, under *sync.WaitGroup) error {
	turn := make(chan struct{}, maxForwarded)
	for {
		select {
		case turn <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		conn, err := f.l.Accept()
		if ctx.Err() != nil {
			if err == nil {
				conn.Close()
			}
			return nil
		}
		if err != nil {
			<-turn
			if !waitALittle(ctx) { // this process is out of descriptors, which passes
				return nil
			}
			continue
		}
		under.Go(func() {
			defer func() { <-turn }()
			if err := carryForward(ctx, c, id, f.Port, conn); err != nil && ctx.Err() == nil {
				p.warn(err)
			}
		})
	}
}

func waitALittle(ctx context.Context) bool {
	select {
	case <-time.After(50 * time.Millisecond):
		return true
	case <-ctx.Done():
		return false
	}
}

// carryForward carries one connection. What ends it after it was open, its own
// program sees.
func carryForward(ctx context.Context, c *client.Client, id string, port int, local net.Conn) error {
	inside, err := c.Dial(ctx, id, port)
	if err != nil {
		reset(local)
		return err
	}
	err = tunnel.Join(ctx, local, inside)
	var own *sandbox.Error
	if errors.As(err, &own) {
		return err
	}
	return nil
}

// reset ends a connection as one that was refused.
func reset(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0) // then it ends as any other
	}
	c.Close()
}

// warn tells of what went wrong with one connection of many.
func (p *program) warn(err error) {
	fmt.Fprintf(p.err, "berth: %s\n", printable(err.Error()))
	if hint := sandbox.HintOf(err); hint != "" {
		_, _ = io.WriteString(p.err, "hint: "+printable(hint)+"\n")
	}
}
