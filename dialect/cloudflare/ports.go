package cloudflare

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

const (
	probeTime   = 5 * time.Second
	minInterval = 100 * time.Millisecond
	maxInterval = 10 * time.Second
	interval    = 500 * time.Millisecond
)

// check settles what is waited for.
func (r *portWatchRequest) check() (every time.Duration, err error) {
	if err := sandbox.CheckPort(r.Port); err != nil {
		return 0, &fault{code: invalidPort, text: err.Error(), context: map[string]any{"port": r.Port}, err: err}
	}
	switch r.Mode {
	case "":
		r.Mode = "http"
	case "http", "tcp":
	default:
		return 0, invalid(fmt.Sprintf("unknown mode %.20q: http and tcp are taken", r.Mode))
	}
	if r.Path == "" {
		r.Path = "/"
	}
	if r.StatusMin == 0 {
		r.StatusMin = 200
	}
	if r.StatusMax == 0 {
		r.StatusMax = 399
	}
	if r.Interval == 0 {
		return interval, nil
	}
	every, err = timeout(r.Interval)
	return min(max(every, minInterval), maxInterval), err
}

// watchPort tells when a port answers, or that the process which was to serve it has
// ended.
func (b *box) watchPort(ctx context.Context, r portWatchRequest, out stream) error {
	every, err := r.check()
	if err != nil {
		return err
	}
	if err := out.send("watching", portEvent{Type: "watching", Port: r.Port}); err != nil {
		return err
	}
	bell := time.NewTicker(every)
	defer bell.Stop()
	for {
		if status, ok := b.probe(ctx, &r); ok {
			return out.send("ready", portEvent{Type: "ready", Port: r.Port, StatusCode: status})
		}
		if over, code, err := b.hasEnded(ctx, r.ProcessID); err != nil {
			return out.send("error", portEvent{Type: "error", Port: r.Port, Error: b.bodyOf(err).Message})
		} else if over {
			return out.send("process_exited", portEvent{Type: "process_exited", Port: r.Port, ExitCode: &code})
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-bell.C:
		}
	}
}

// hasEnded reports whether a process, if one is named, has ended.
func (b *box) hasEnded(ctx context.Context, id string) (over bool, code int, err error) {
	if id == "" {
		return false, 0, nil
	}
	p, _, err := b.find(ctx, id)
	if err != nil || p.Exit == nil {
		return false, 0, err
	}
	return true, exitCode(*p.Exit), nil
}

// probe asks a port once.
func (b *box) probe(ctx context.Context, r *portWatchRequest) (status int, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	if r.Mode == "tcp" {
		c, err := b.engine.Dial(ctx, b.id, r.Port)
		if err != nil {
			return 0, false
		}
		return 0, c.Close() == nil
	}
	t := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return b.engine.Dial(ctx, b.id, r.Port)
	}}
	defer t.CloseIdleConnections()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://localhost:%d", r.Port), nil)
	if err != nil {
		return 0, false
	}
	if u, err := q.URL.Parse(r.Path); err == nil && u.Host == q.URL.Host {
		q.URL = u
	}
	answer, err := t.RoundTrip(q)
	if err != nil {
		return 0, false
	}
	_, err = io.Copy(io.Discard, io.LimitReader(answer.Body, maxProbe))
	if err = errors.Join(err, answer.Body.Close()); err != nil {
		return 0, false
	}
	return answer.StatusCode, answer.StatusCode >= r.StatusMin && answer.StatusCode <= r.StatusMax
}

// maxProbe bounds what is read of a probe's answer, in bytes.
const maxProbe = 1 << 20
