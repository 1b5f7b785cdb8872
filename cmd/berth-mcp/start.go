package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/berth-dev/berth/mcpgateway"
)

const (
	address   = ":50005"
	tokenFile = "/etc/mcp-gateway/.token"

	// serving is the argument of the process that stays. Its descriptors are these.
	serving    = "serve"
	listenerFD = 3
	ordersFD   = 4
	readyFD    = 5

	ready = "ready" // what it says when all is up; anything else is why not
)

// orders are what the process that stays is told, past the eyes of others.
type orders struct {
	Config json.RawMessage `json:"config"`
	Token  string          `json:"token"`
}

// start starts the process that stays, and waits until it is ready.
func start(config string) error {
	o := orders{Config: json.RawMessage(config), Token: os.Getenv(mcpgateway.TokenVariable)}
	if o.Token == "" {
		return errors.New(mcpgateway.TokenVariable + " is empty: it is what clients show")
	}
	p, err := place()
	if err != nil {
		return err
	}
	if _, err := mcpgateway.New(p, o.Config); err != nil {
		return err
	}
	l, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return errors.New("port 50005 is taken: a gateway runs already")
	}
	if err != nil {
		return err
	}
	defer l.Close()
	listener, err := l.(*net.TCPListener).File()
	if err != nil {
		return err
	}
	defer listener.Close()
	if err := writeToken(o.Token); err != nil {
		return fmt.Errorf("write the token: %w", err)
	}
	return stay(listener, o)
}

// writeToken keeps the token for root alone.
func writeToken(token string) error {
	dir := filepath.Dir(tokenFile)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	part := tokenFile + ".part"
	if err := os.Remove(part); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.WriteFile(part, []byte(token), 0o600); err != nil {
		return err
	}
	return os.Rename(part, tokenFile)
}

// stay starts the process, in a session of its own, and hears how it went.
func stay(listener *os.File, o orders) error {
	if err := os.MkdirAll(logFolder, 0o750); err != nil {
		return err
	}
	said, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	defer said.Close()
	ordersOut, ordersIn, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ordersIn.Close()
	readyOut, readyIn, err := os.Pipe()
	if err != nil {
		return errors.Join(err, ordersOut.Close())
	}
	defer readyOut.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{"mcp-gateway", serving}
	cmd.Dir, cmd.Env = "/", withoutToken(os.Environ())
	cmd.Stdout, cmd.Stderr = said, said
	cmd.ExtraFiles = []*os.File{listener, ordersOut, readyIn}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	if err := errors.Join(err, ordersOut.Close(), readyIn.Close()); err != nil {
		return err
	}
	if err := json.NewEncoder(ordersIn).Encode(o); err != nil {
		return err
	}
	if err := ordersIn.Close(); err != nil {
		return err
	}
	word, err := io.ReadAll(io.LimitReader(readyOut, 64<<10))
	if err != nil {
		return err
	}
	switch string(word) {
	case ready:
		return nil
	case "":
		return errors.New("the gateway ended: see " + logFile)
	}
	return errors.New(string(word))
}

func withoutToken(env []string) []string {
	var rest []string
	for _, v := range env {
		if !strings.HasPrefix(v, mcpgateway.TokenVariable+"=") {
			rest = append(rest, v)
		}
	}
	return rest
}
