// Command berth-mcp shows the MCP servers of a sandbox as one. Templates have it as
// mcp-gateway:
//
//	mcp-gateway --config JSON    start the servers that JSON names, and the gateway;
//	                             returns once all of them are ready
//	mcp-gateway pull NAME...     install servers of the catalogue beforehand
//
// The token that clients show is that of GATEWAY_ACCESS_TOKEN. What fails is told on
// standard error, with exit code 1.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"os/user"
	"strconv"
	"strings"
	"syscall"

	"github.com/berth-dev/berth/mcpgateway"
)

const (
	root      = "/opt/mcp-gateway"
	logFolder = "/var/log/mcp-gateway"
	logFile   = logFolder + "/gateway.log"
	account   = "user" // whom servers run as

	usage = "usage: mcp-gateway --config JSON | mcp-gateway pull NAME..."
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mcp-gateway:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if os.Geteuid() != 0 {
		return errors.New("it is to be run as root: its token is nobody else's")
	}
	switch {
	case len(args) == 2 && args[0] == "--config":
		return start(args[1])
	case len(args) == 1 && strings.HasPrefix(args[0], "--config="):
		return start(strings.TrimPrefix(args[0], "--config="))
	case len(args) > 1 && args[0] == "pull":
		return pull(ctx, args[1:])
	case len(args) == 1 && args[0] == serving:
		return serve(ctx)
	}
	return errors.New(usage)
}

// pull installs servers of the catalogue.
func pull(ctx context.Context, names []string) error {
	p, err := place()
	if err != nil {
		return err
	}
	p.Log = os.Stderr
	return p.Pull(ctx, names)
}

// place is where servers are installed in a sandbox, and as whom they run.
func place() (*mcpgateway.Place, error) {
	u, err := user.Lookup(account)
	if err != nil {
		return nil, fmt.Errorf("servers run as %s: %w", account, err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &mcpgateway.Place{Root: root, Account: &mcpgateway.Account{Name: u.Username, Home: u.HomeDir, UID: uint32(uid), GID: uint32(gid)}}, nil
}
