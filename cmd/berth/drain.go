package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// sayEvery is how often a draining server tells what it waits for.
const sayEvery = 2 * time.Second

// serveUntilSignal answers requests on every listener until a signal, then lets those under way
// end: at most for the time drain, or until a second signal.
func serveUntilSignal(ctx context.Context, all []net.Listener, h *house, stop <-chan os.Signal, drain time.Duration, log *slog.Logger) error {
	base, cut := context.WithCancel(ctx) // of every request
	defer cut()
	active := &requests{}
	server := newServer(active.count(h.handler), base, log)
	served := make(chan error, len(all))
	for _, l := range all {
		go func() { served <- server.Serve(l) }()
	}

	select {
	case err := <-served:
		return errors.Join(err, server.Close())
	case <-ctx.Done():
	case s := <-stop:
		log.Info("stopping; sandboxes live on", "signal", s.String(), "at most", drain)
	}
	h.endless()
	bound, cancel := context.WithTimeout(ctx, drain)
	defer cancel()
	finished := make(chan error, 1)
	go func() { finished <- server.Shutdown(bound) }()
	err := active.wait(finished, stop, log)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errCut) || errors.Is(err, context.Canceled) {
		log.Warn("cutting off what is still under way", "requests", active.String())
		h.streams()
		cut()
		err = server.Close()
	}
	for range all {
		if serveErr := <-served; !errors.Is(serveErr, http.ErrServerClosed) {
			err = errors.Join(err, serveErr)
		}
	}
	active.gone(log)
	return err
}

var errCut = errors.New("a second signal")

// requests counts what is under way, to say what a stop waits for.
type requests struct {
	mu    sync.Mutex
	under map[*http.Request]time.Time
}

func (a *requests) count(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		if a.under == nil {
			a.under = make(map[*http.Request]time.Time)
		}
		a.under[r] = time.Now()
		a.mu.Unlock()
		defer func() {
			a.mu.Lock()
			delete(a.under, r)
			a.mu.Unlock()
		}()
		next.ServeHTTP(w, r)
	})
}

// wait returns what finished gives, or errCut at a signal, and tells meanwhile
// what it waits for.
func (a *requests) wait(finished <-chan error, stop <-chan os.Signal, log *slog.Logger) error {
	tick := time.NewTicker(sayEvery)
	defer tick.Stop()
	for {
		select {
		case err := <-finished:
			return err
		case <-stop:
			return errCut
		case <-tick.C:
			log.Info("waiting for requests", "requests", a.String())
		}
	}
}

// goneLimit bounds the wait for handlers whose context has ended.
const goneLimit = 5 * time.Second

// gone waits for the handlers to return: what they use is closed next.
func (a *requests) gone(log *slog.Logger) {
	for end := time.Now().Add(goneLimit); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if a.String() == "" {
			return
		}
	}
	log.Warn("closing under requests that do not end", "requests", a.String())
}

// String names up to eight requests, the oldest first.
func (a *requests) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	type entry struct {
		text string
		age  time.Duration
	}
	var all []entry
	for r, since := range a.under {
		all = append(all, entry{r.Method + " " + r.URL.Path, time.Since(since)})
	}
	slices.SortFunc(all, func(x, y entry) int { return int(y.age - x.age) })
	var words []string
	for i, e := range all {
		if i == 8 {
			words = append(words, fmt.Sprintf("and %d more", len(all)-8))
			break
		}
		words = append(words, fmt.Sprintf("%s for %s", e.text, e.age.Round(time.Second)))
	}
	return strings.Join(words, ", ")
}
