package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"syscall"
	"time"

	"golang.org/x/net/netutil"

	"github.com/berth-dev/berth/mcpgateway"
)

const (
	// startLimit is less than the time that clients give to the start.
	startLimit = 50 * time.Second

	maxConnections = 512
)

// serve is the process that stays: it starts the servers, says that it is ready, and
// serves until it is told to end.
func serve(ctx context.Context) (err error) {
	debug.SetGCPercent(50) // most of its life is idle
	for fd := listenerFD; fd <= readyFD; fd++ {
		syscall.CloseOnExec(fd)
	}
	word := os.NewFile(readyFD, "ready")
	defer func() {
		if err != nil {
			io.WriteString(word, err.Error()) // nobody may be there to hear it
		}
		word.Close()
	}()
	g, handler, err := prepare()
	if err != nil {
		return err
	}
	defer g.Close()
	l, err := net.FileListener(os.NewFile(listenerFD, "listener"))
	if err != nil {
		return err
	}
	defer l.Close()
	if err := g.Start(ctx, startLimit); err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: log.New(os.Stderr, "http: ", log.LstdFlags|log.LUTC)}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(netutil.LimitListener(l, maxConnections)) }()
	defer server.Close()
	if _, err := io.WriteString(word, ready); err != nil {
		return fmt.Errorf("nobody waits for the gateway any more: %w", err)
	}
	if err := word.Close(); err != nil {
		return err
	}
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return nil
	}
}

// prepare makes the gateway that the orders ask for.
func prepare() (*mcpgateway.Gateway, http.Handler, error) {
	in := os.NewFile(ordersFD, "orders")
	var o orders
	if err := errors.Join(json.NewDecoder(in).Decode(&o), in.Close()); err != nil {
		return nil, nil, fmt.Errorf("read the orders: %w", err)
	}
	p, err := place()
	if err != nil {
		return nil, nil, err
	}
	if p.Log, err = mcpgateway.OpenLog(logFile); err != nil {
		return nil, nil, err
	}
	g, err := mcpgateway.New(p, o.Config)
	if err != nil {
		return nil, nil, err
	}
	handler, err := g.Handler(o.Token)
	return g, handler, err
}
