package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// manifest is of a small server as people write it.
const manifest = `{"name":"project","private":true,"dependencies":{"express":"^4","lodash":"^4"}}`

// serves is a command that needs all of it.
const serves = `require("express"); require("lodash"); console.log("ready")`

// project is what it takes until a project can be worked on: a repository is cloned and
// its packages are installed, or a sandbox is created from a snapshot of that. It wants
// the registry that npm is configured with here, which sandboxes reach through a proxy;
// without one it is left out, loudly.
func project(ctx context.Context, s *server) (rows []row, err error) {
	npm := exec.CommandContext(ctx, "npm", "config", "get", "registry")
	out, err := npm.Output()
	if err != nil {
		return leftOut("no npm says which registry there is: %v", err)
	}
	registry, stop, err := reachable(strings.TrimSpace(string(out)))
	if err != nil {
		return leftOut("%v", err)
	}
	defer stop()
	var scratch, from []float64
	snapshot := ""
	for range 2 {
		begin := time.Now()
		sb, err := s.Create(ctx, sandbox.CreateRequest{})
		if err != nil {
			return nil, err
		}
		id := string(sb.ID)
		if err := s.setUp(ctx, id, registry); err != nil {
			if rerr := s.Remove(context.WithoutCancel(ctx), id); rerr != nil || ctx.Err() != nil {
				return nil, errors.Join(err, rerr)
			}
			return leftOut("packages cannot be installed from %s: %.300v", registry, err)
		}
		scratch = append(scratch, ms(time.Since(begin)))
		if snapshot == "" {
			kept, err := s.Snapshot(ctx, id, sandbox.SnapshotRequest{})
			if err != nil {
				return nil, err
			}
			snapshot = string(kept.ID)
		}
		if err := s.Remove(ctx, id); err != nil {
			return nil, err
		}
	}
	defer func() { err = errors.Join(err, s.RemoveSnapshot(context.WithoutCancel(ctx), snapshot)) }()
	for range 7 {
		begin := time.Now()
		sb, err := s.Create(ctx, sandbox.CreateRequest{Snapshot: snapshot})
		if err != nil {
			return nil, err
		}
		if _, err := s.run(ctx, string(sb.ID), "sh", "-c", "cd project && node -e '"+serves+"'"); err != nil {
			return nil, err
		}
		from = append(from, ms(time.Since(begin)))
		if err := s.Remove(ctx, string(sb.ID)); err != nil {
			return nil, err
		}
	}
	long, short := median("project: clone, npm install, first use", "ms", scratch), median("  the same from a snapshot", "ms", from)
	ratio := row{Name: "  so many times quicker", Unit: "×", Value: long.Value / short.Value, Samples: len(from), Reference: "15 (30 s against 2 s)"}
	return []row{long, short, ratio}, nil
}

// reachable is a URL by which sandboxes reach a registry, until stop is called.
func reachable(registry string) (proxied string, stop func() error, err error) {
	to, err := url.Parse(registry)
	if err != nil || to.Host == "" {
		return "", nil, fmt.Errorf("%.100q is no registry: %w", registry, err)
	}
	l, err := net.Listen("tcp", site+":0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}}
	go server.Serve(l) // ends with Close
	return "http://" + l.Addr().String() + "/", server.Close, nil
}

// setUp makes a repository in a sandbox, clones it, installs its packages and uses them.
func (s *server) setUp(ctx context.Context, id, registry string) error {
	for _, line := range []string{
		"mkdir origin && cd origin && git init -q && cat > package.json <<'END'\n" + manifest + "\nEND\n" +
			"git add . && git -c user.name=a -c user.email=a@localhost commit -qm first",
		"git clone -q file://$PWD/origin project",
		"cd project && npm install --no-audit --no-fund --fetch-retries=1 --replace-registry-host=always --registry=" + registry,
		"cd project && node -e '" + serves + "'",
	} {
		if _, err := s.run(ctx, id, "sh", "-c", line); err != nil {
			return err
		}
	}
	return nil
}

// leftOut is a measure that cannot be taken here.
func leftOut(format string, args ...any) ([]row, error) {
	fmt.Fprintf(os.Stderr, "LEFT OUT: "+format+"\n", args...)
	return nil, nil
}
