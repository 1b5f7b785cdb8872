package docker

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sandbox"
)

// Exit codes of containers that a signal has ended.
const (
	killed     = 128 + 9
	terminated = 128 + 15
)

// Bounds on time that no caller sets.
const (
	undoTime  = time.Minute
	asideTime = 2 * time.Minute // to put a sandbox aside
	stopGrace = 10 * time.Second
	maxGrace  = 10 * time.Minute
)

// start runs what a container was created with.
func (d *Dialect) start(w http.ResponseWriter, r *http.Request) error {
	name, err := d.named(r)
	if err != nil {
		return err
	}
	unlock, err := d.names.lock(r.Context(), name)
	if err != nil {
		return err
	}
	defer unlock()
	if s := d.sidecar(name); s != nil {
		w.WriteHeader(s.begin())
		return nil
	}
	c, err := d.load(r.Context(), name)
	if err != nil {
		return err
	}
	if c.Phase == running {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	if err := d.run(r.Context(), c); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// run makes a container run. One whose memory was kept goes on; any other begins
// with its command.
func (d *Dialect) run(ctx context.Context, c *container) error {
	if c.box.State != sandbox.Running {
		s, err := d.engine.Start(ctx, string(c.box.ID))
		if err != nil {
			return err
		}
		c.box = s
	}
	if err := d.command(ctx, c); err != nil {
		return err
	}
	c.GoesOn = false
	c.Phase, c.Code, c.Started, c.Ended = running, 0, time.Now().UTC().Round(0), time.Time{}
	if err := d.save(ctx, c); err != nil {
		return err
	}
	d.watch(c)
	return nil
}

// command starts a container's command, unless that lives in the memory which was
// kept.
func (d *Dialect) command(ctx context.Context, c *container) error {
	id := string(c.box.ID)
	if c.GoesOn {
		if c.Process == "" { // it has none, or had ended well
			return nil
		}
		all, err := d.engine.Processes(ctx, id)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(all, func(p sandbox.Process) bool { return p.ID == c.Process && p.Exit == nil }) {
			return nil
		}
	}
	c.Process = ""
	if len(c.Argv) == 0 {
		return nil
	}
	p, err := d.engine.StartProcess(ctx, id, sandbox.Command{Argv: c.Argv, Cwd: c.Dir, User: c.User})
	c.Process = p.ID
	return err
}

// wait answers once a container has exited.
func (d *Dialect) wait(w http.ResponseWriter, r *http.Request) error {
	name, err := d.named(r)
	if err != nil {
		return err
	}
	if err := d.own(r.Context(), name); err != nil {
		return err
	}
	gone := r.URL.Query().Get("condition") == "removed"
	code := -1
	for {
		happened, done := d.news.watch(name)
		now, over, err := d.outcome(r.Context(), name, gone)
		if now >= 0 {
			code = now
		}
		switch {
		case err != nil && (code < 0 || sandbox.KindOf(err) != sandbox.NotFound):
			done()
			return err
		case err != nil || over:
			done()
			writeJSON(w, http.StatusOK, map[string]any{"StatusCode": max(code, 0)})
			return nil
		}
		select {
		case <-happened:
			done()
		case <-r.Context().Done():
			done()
			return context.Cause(r.Context())
		}
		if code < 0 {
			code = killed // if it is gone when it is looked at next
		}
	}
}

// outcome is the exit code of a container, or -1, and whether that is all that is
// waited for.
func (d *Dialect) outcome(ctx context.Context, name string, gone bool) (code int, over bool, err error) {
	if s := d.sidecar(name); s != nil {
		return -1, false, nil
	}
	c, err := d.load(ctx, name)
	if err != nil {
		return -1, false, err
	}
	if c.Phase == exited && !d.isEnding(name) {
		return c.Code, !gone, nil
	}
	return -1, false, nil
}

// kill sends a signal to a container.
func (d *Dialect) kill(w http.ResponseWriter, r *http.Request) error {
	name, err := d.named(r)
	if err != nil {
		return err
	}
	sig, err := signalOf(r.URL.Query().Get("signal"))
	if err != nil {
		return err
	}
	unlock, err := d.names.lock(r.Context(), name)
	if err != nil {
		return err
	}
	defer unlock()
	if s := d.sidecar(name); s != nil {
		if !s.halt() {
			return notRunning(name)
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	c, err := d.load(r.Context(), name)
	if err != nil {
		return err
	}
	if c.Phase != running {
		return notRunning(name)
	}
	if err := d.signal(r.Context(), c, sig); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// signal is what a signal does to a running container.
func (d *Dialect) signal(ctx context.Context, c *container, sig unix.Signal) error {
	ends := sig == unix.SIGTERM || sig == unix.SIGINT || sig == unix.SIGQUIT
	alive := c.Process != ""
	switch {
	case sig == unix.SIGKILL:
		return d.putAside(ctx, c, killed, false)
	case !ends && !alive: // the vendor's program takes no others
		return nil
	case ends && !d.forget:
		return d.putAside(ctx, c, codeOf(sig, alive), true)
	case ends && !alive:
		return d.putAside(ctx, c, codeOf(sig, alive), false)
	}
	err := d.engine.Signal(ctx, string(c.box.ID), c.Process, unix.SignalName(sig))
	if sandbox.KindOf(err) == sandbox.NotFound || sandbox.KindOf(err) == sandbox.Conflict {
		return nil // it ends already: whoever watches it has its code
	}
	return err
}

// codeOf is the code with which a container exits on a signal: the vendor's program
// alone ends well.
func codeOf(sig unix.Signal, alive bool) int {
	if alive {
		return 128 + int(sig)
	}
	return 0
}

// putAside ends a container. Its sandbox keeps its files, and with memory its
// processes too, which then go on when the next container of the name is started.
//
// Connections into it are cut first: whoever hears of the end, and calls again, must not
// do so on one that is about to be cut. Then the end goes on record: whoever sees the
// sandbox stop must know why. Who waits for the end hears of it last, and finds the
// sandbox at rest.
func (d *Dialect) putAside(ctx context.Context, c *container, code int, memory bool) error {
	// Whoever has sent the signal may leave; half of it must not be done.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), asideTime)
	defer cancel()
	defer d.beginEnd(c.Name)()
	d.unwatch(c.box.ID)
	was := c.state
	d.cutInside(c.box.ID)
	c.Phase, c.Code, c.Ended, c.Revived = exited, code, time.Now().UTC().Round(0), false
	if err := d.save(ctx, c); err != nil {
		c.state = was
		d.watch(c)
		return err
	}
	err := d.rest(ctx, c, memory)
	if err == nil {
		return nil
	}
	c.state = was
	if serr := d.save(ctx, c); serr != nil {
		return errors.Join(err, serr)
	}
	d.watch(c)
	return err
}

// beginEnd keeps a container's end from those who wait for it, until tell is called.
func (d *Dialect) beginEnd(name string) (tell func()) {
	d.mu.Lock()
	d.ending[name] = true
	d.mu.Unlock()
	return func() {
		d.mu.Lock()
		delete(d.ending, name)
		d.mu.Unlock()
		d.news.post(name)
	}
}

func (d *Dialect) isEnding(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ending[name]
}

// rest ends a container's sandbox for the time being.
func (d *Dialect) rest(ctx context.Context, c *container, memory bool) error {
	d.cutInside(c.box.ID)
	id := string(c.box.ID)
	if memory && c.box.State == sandbox.Paused {
		return nil // it sleeps already
	}
	if memory {
		if err := d.unmount(ctx, c); err != nil {
			return err
		}
		_, err := d.engine.Pause(ctx, id)
		if sandbox.KindOf(err) != sandbox.Unsupported {
			return err
		}
	}
	_, err := d.engine.Stop(ctx, id)
	return err
}

// stop is kill with patience.
func (d *Dialect) stop(w http.ResponseWriter, r *http.Request) error {
	name, err := d.named(r)
	if err != nil {
		return err
	}
	grace := stopGrace
	if t := r.URL.Query().Get("t"); t != "" {
		n, err := strconv.Atoi(t)
		if err != nil {
			return invalid("t is %.20q, seconds are taken", t)
		}
		if grace = time.Duration(n) * time.Second; n < 0 || grace > maxGrace {
			grace = maxGrace
		}
	}
	asked := unix.SIGTERM
	if s := r.URL.Query().Get("signal"); s != "" {
		if asked, err = signalOf(s); err != nil {
			return err
		}
	}
	status, err := d.halt(r.Context(), name, asked)
	if err == nil && status == http.StatusAccepted {
		status, err = d.halted(r.Context(), name, grace)
	}
	if err != nil {
		return err
	}
	w.WriteHeader(status)
	return nil
}

// halt asks a container to end: Accepted if it takes its time.
func (d *Dialect) halt(ctx context.Context, name string, sig unix.Signal) (status int, err error) {
	unlock, err := d.names.lock(ctx, name)
	if err != nil {
		return 0, err
	}
	defer unlock()
	if s := d.sidecar(name); s != nil {
		if !s.halt() {
			return http.StatusNotModified, nil
		}
		return http.StatusNoContent, nil
	}
	c, err := d.load(ctx, name)
	if err != nil {
		return 0, err
	}
	if c.Phase != running {
		return http.StatusNotModified, nil
	}
	if err := d.signal(ctx, c, sig); err != nil {
		return 0, err
	}
	if c.Phase == running {
		return http.StatusAccepted, nil
	}
	return http.StatusNoContent, nil
}

// halted waits for a container that was asked to end, and then ends it.
func (d *Dialect) halted(ctx context.Context, name string, grace time.Duration) (int, error) {
	late := time.NewTimer(grace)
	defer late.Stop()
	for {
		happened, done := d.news.watch(name)
		_, over, err := d.outcome(ctx, name, false)
		if over || sandbox.KindOf(err) == sandbox.NotFound {
			done()
			return http.StatusNoContent, nil
		}
		if err != nil {
			done()
			return 0, err
		}
		select {
		case <-happened:
			done()
		case <-late.C:
			done()
			return d.halt(ctx, name, unix.SIGKILL)
		case <-ctx.Done():
			done()
			return 0, context.Cause(ctx)
		}
	}
}

// remove ends a container and what there is of it. workerd gives names; who gives an id
// has it from a list, and wants nothing to stay.
func (d *Dialect) remove(w http.ResponseWriter, r *http.Request) error {
	name, err := d.named(r)
	if err != nil {
		return err
	}
	unlock, err := d.names.lock(r.Context(), name)
	if err != nil {
		return err
	}
	defer unlock()
	force, forGood := isTrue(r.URL.Query().Get("force")), idPattern.MatchString(r.PathValue("name"))
	if s := d.sidecar(name); s != nil {
		if s.running() && !force {
			return isRunning(name)
		}
		d.dropSidecar(s)
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	c, err := d.find(r.Context(), name)
	if err == nil && c.Gone && !c.Doubt && !forGood {
		err = noContainer(name)
	}
	if err != nil {
		return err
	}
	if c.Phase == running && !force {
		return isRunning(name)
	}
	if d.waits(c) && !c.Gone && !forGood {
		err = d.leave(r.Context(), c)
	} else {
		err = d.destroy(r.Context(), c)
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// destroy removes a container's sandbox, for good.
func (d *Dialect) destroy(ctx context.Context, c *container) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), asideTime)
	defer cancel()
	d.unwatch(c.box.ID)
	d.cutInside(c.box.ID)
	if c.Phase == running { // who waits for its end hears of it before who has asked for it
		c.Phase, c.Code, c.Ended = exited, killed, time.Now().UTC().Round(0)
		if err := d.save(ctx, c); err != nil && sandbox.KindOf(err) != sandbox.NotFound {
			return err
		}
	}
	d.cutInside(c.box.ID)
	err := d.engine.Remove(ctx, string(c.box.ID))
	if err != nil && sandbox.KindOf(err) != sandbox.NotFound {
		return err
	}
	d.disconnect(c.box.ID)
	d.news.post(c.Name)
	return nil
}

func isRunning(name string) error {
	return &sandbox.Error{Op: "remove container", Kind: sandbox.Conflict, Err: fmt.Errorf("container %.200s is running", name), Hint: "stop it, or force"}
}

func isTrue(s string) bool { return s == "1" || strings.EqualFold(s, "true") }

// signalOf reads a signal: SIGTERM, TERM or 15. Left out it is SIGKILL.
func signalOf(s string) (unix.Signal, error) {
	if s == "" {
		return unix.SIGKILL, nil
	}
	if n, err := strconv.Atoi(s); err == nil && n > 0 && n < 65 {
		return unix.Signal(n), nil
	}
	name := strings.ToUpper(s)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	if sig := unix.SignalNum(name); sig != 0 {
		return sig, nil
	}
	return 0, invalid("%.40q is no signal", s)
}
