package e2b

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/berth-dev/berth/dialect/e2b/envd/filesystem/filesystemconnect"
	"github.com/berth-dev/berth/dialect/e2b/envd/process/processconnect"
	"github.com/berth-dev/berth/sandbox"
)

// What processes and paths get that name nothing, where the template says nothing.
const (
	defaultUser = sandbox.DefaultUser
	defaultDir  = sandbox.DefaultHome
)

// maxMessage bounds one message to the guest's services.
const maxMessage = 16 << 20

// target is the sandbox that a request to the guest's services is for.
type target struct {
	sandbox.Sandbox
	id   string
	user string // as the request says; "" means the default
	home string // of that user; "" means that of its name
	out  *gathered
}

type targetKey struct{}

func targetOf(ctx context.Context) *target { return ctx.Value(targetKey{}).(*target) }

// guestHandler serves what these clients find on a sandbox's guest port.
func (d *Dialect) guestHandler() http.Handler {
	mux := http.NewServeMux()
	limit := connect.WithReadMaxBytes(maxMessage)
	end := connect.WithInterceptors(breaker{}, users{d})
	mux.Handle(processconnect.NewProcessHandler(&processes{d}, limit, end))
	mux.Handle(filesystemconnect.NewFilesystemHandler(&filesystem{d}, limit, end))
	for pattern, h := range map[string]handler{
		"GET /metrics":        d.guestMetrics,
		"GET /envs":           d.guestEnvs,
		"GET /files":          d.download,
		"HEAD /files":         d.download,
		"POST /files":         d.upload,
		"POST /files/compose": d.compose,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			switch err := h(w, r); {
			case errors.Is(err, sandbox.ErrRemoved):
				d.renderTraffic(w, r, targetOf(r.Context()).id, errGone)
			case err != nil:
				d.render(w, r, err)
			}
		})
	}
	return mux
}

// closedRoutes are the guest port's routes that are not for clients.
var closedRoutes = map[string]bool{"/init": true, "/freeze": true, "/unfreeze": true, "/collapse": true, "/fsfreeze": true, "/fsthaw": true, "/upgrade": true}

// serveGuest serves the guest port of a sandbox: what proves the right to it is the
// sandbox's token, not an account's key.
func (d *Dialect) serveGuest(w http.ResponseWriter, r *http.Request, id string) {
	if cors(w, r) {
		return
	}
	if closedRoutes[r.URL.Path] {
		writeJSON(w, http.StatusNotFound, map[string]any{"message": "no such route", "path": r.URL.Path, "code": http.StatusNotFound})
		return
	}
	ctx := sandbox.WithCaller(r.Context(), sandbox.Operator())
	s, err := d.reachable(ctx, id)
	if err != nil {
		d.renderTraffic(w, r, id, err)
		return
	}
	err = d.checkGuest(&s, r)
	health := r.URL.Path == "/health" // anybody may ask
	if health && err != nil && s.State != sandbox.Running {
		d.renderTraffic(w, r, id, errGone)
		return
	}
	if !health && err != nil {
		d.render(w, r, err)
		return
	}
	if s.State != sandbox.Running { // those who may, wake it
		if s, err = d.engine.Awake(ctx, id); err != nil {
			d.renderTraffic(w, r, id, err)
			return
		}
	}
	if health {
		d.serveHealth(ctx, w, r, id)
		return
	}
	t := &target{Sandbox: s, id: id, user: basicUser(r)}
	if r.URL.Path == processconnect.ProcessStartProcedure {
		t.out = &gathered{ResponseWriter: w}
		defer t.out.end()
		w = t.out
	}
	d.guest.ServeHTTP(w, r.WithContext(context.WithValue(ctx, targetKey{}, t)))
}

// serveHealth says whether a sandbox lives.
func (d *Dialect) serveHealth(ctx context.Context, w http.ResponseWriter, r *http.Request, id string) {
	if !d.answers(ctx, id) {
		d.renderTraffic(w, r, id, errGone)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusNoContent)
}

// answers reports whether a sandbox that runs is not about to end: clients whose
// stream broke ask at once, and what they are told is why. One that ends is waited
// for, so that whoever is told so finds it gone.
func (d *Dialect) answers(ctx context.Context, id string) bool {
	ctx, cancel := context.WithTimeout(ctx, endTime)
	defer cancel()
	for {
		if _, err := d.engine.Stat(ctx, id, "/", false); err == nil {
			return true
		}
		if s, err := d.reachable(ctx, id); err != nil || s.State != sandbox.Running {
			return false
		}
		select {
		case <-time.After(endPause):
		case <-ctx.Done():
			return false
		}
	}
}

// How long the end of a sandbox is waited for, and how often it is looked at.
const (
	endTime  = 10 * time.Second
	endPause = 20 * time.Millisecond
)

// checkGuest says why a request may not use a sandbox's guest port.
func (d *Dialect) checkGuest(s *sandbox.Sandbox, r *http.Request) error {
	if r.URL.Path == "/files" {
		return d.checkFile(s, r, time.Now())
	}
	if d.secure(s) && !same(r.Header.Get("X-Access-Token"), d.accessToken(s.ID)) {
		return unauthorized("unauthorized access, please provide a valid access token or method signing if supported")
	}
	return nil
}

// basicUser is the user that a request names in place of credentials.
func basicUser(r *http.Request) string {
	text, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Basic ")
	if !ok {
		return ""
	}
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return ""
	}
	user, _, _ := strings.Cut(string(b), ":")
	return user
}

// cors lets pages of any site use the port: what counts is the token. It reports
// whether that was all.
func cors(w http.ResponseWriter, r *http.Request) (done bool) {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Expose-Headers", "*")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")
	if asked := r.Header.Get("Access-Control-Request-Headers"); asked != "" {
		h.Set("Access-Control-Allow-Headers", asked)
	}
	h.Set("Access-Control-Max-Age", "7200")
	w.WriteHeader(http.StatusNoContent)
	return true
}

// pipAnywhere lets pip install beside the distribution's own packages, as it does in
// these clients' images.
const pipAnywhere = "PIP_BREAK_SYSTEM_PACKAGES"

// env is what every process of the sandbox gets, beneath what the request says.
func (t *target) env(asked map[string]string) map[string]string {
	env := facts(t.id, aliasOf(&t.Sandbox))
	env[pipAnywhere] = "1"
	for k, v := range asked {
		env[k] = v
	}
	return env
}

// path makes a client's path absolute: "" is the default folder, "~" the user's
// home, and what is relative begins there.
func (t *target) path(p string) string {
	home := cmp.Or(t.home, homeOf(cmp.Or(t.user, t.User)))
	switch {
	case p == "":
		return t.dir()
	case p == "~":
		return home
	case strings.HasPrefix(p, "~/"):
		return clean(home + p[1:])
	case strings.HasPrefix(p, "/"):
		return clean(p)
	}
	return clean(home + "/" + p)
}

// dir is where what names no folder runs.
func (t *target) dir() string { return cmp.Or(t.Workdir, defaultDir) }

// clean drops what says nothing, and keeps ".." for the guest to judge.
func clean(p string) string {
	var parts []string
	for part := range strings.SplitSeq(p, "/") {
		switch part {
		case "", ".":
		case "..":
			if len(parts) > 0 {
				parts = parts[:len(parts)-1]
			}
		default:
			parts = append(parts, part)
		}
	}
	return "/" + strings.Join(parts, "/")
}

// homeOf is where a user of a template lives.
func homeOf(user string) string {
	switch user {
	case "", defaultUser:
		return sandbox.DefaultHome
	case "root":
		return "/root"
	}
	return "/home/" + url.PathEscape(user)
}

// noUser reports whether an error says that there is no such user inside.
func noUser(err error) bool {
	return sandbox.KindOf(err) == sandbox.NotFound && strings.Contains(err.Error(), "no user ")
}

// userError puts an unknown user in these clients' words.
func (t *target) userError(err error) error {
	if noUser(err) {
		return t.unknownUser()
	}
	return err
}

func (t *target) unknownUser() error {
	return connect.NewError(connect.CodeUnauthenticated, errors.New("invalid username: '"+printable(t.user)+"'"))
}
