package e2b

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/berth-dev/berth/sandbox"
)

// route is one line of the control API's surface.
type route struct {
	pattern string // method and path
	handle  handler
	scope   sandbox.Scope // that the key needs; "": no key is asked for
}

// handler serves a request on behalf of the caller in its context, or says why
// not; its error is rendered by controlHandler.
type handler func(w http.ResponseWriter, r *http.Request) error

func (d *Dialect) routes() []route {
	const (
		read, exec, admin = sandbox.ScopeRead, sandbox.ScopeExec, sandbox.ScopeAdmin
		box               = "/sandboxes/{id}"
		content           = "/volumecontent/{volume}"
	)
	return append(d.keyRoutes(), []route{
		{"GET /health", d.health, ""},

		{"POST /sandboxes", d.createFirst, admin},
		{"POST /v2/sandboxes", d.createSecond, admin},
		{"GET /sandboxes", d.listFirst, read},
		{"GET /v2/sandboxes", d.listSecond, read},
		{"GET /sandboxes/metrics", d.metricsOfMany, read},
		{"GET " + box, d.get, read},
		{"DELETE " + box, d.kill, admin},
		{"POST " + box + "/connect", d.connect, exec},
		{"POST /v2" + box + "/connect", d.connect, exec},
		{"POST " + box + "/pause", d.pause, exec},
		{"POST " + box + "/resume", d.resume, exec},
		{"POST " + box + "/timeout", d.setTimeout, exec},
		{"POST " + box + "/refreshes", d.refresh, exec},
		{"GET " + box + "/metrics", d.metrics, read},
		{"GET " + box + "/logs", d.logsFirst, read},
		{"GET /v2" + box + "/logs", d.logsSecond, read},
		{"PUT " + box + "/network", d.updateNetwork, admin},
		{"PATCH " + box + "/metadata", d.patchMetadata, admin},

		{"POST " + box + "/fork", d.fork, admin},
		{"POST " + box + "/snapshots", d.snapshot, admin},
		{"GET /snapshots", d.snapshots, read},

		{"POST /secrets", d.createSecret, admin},
		{"GET /secrets", d.listSecrets, admin},
		{"GET /secrets/{secret}", d.getSecret, admin},
		{"POST /secrets/{secret}", d.updateSecret, admin},
		{"DELETE /secrets/{secret}", d.removeSecret, admin},

		{"POST /volumes", d.createVolume, admin},
		{"GET /volumes", d.listVolumes, read},
		{"GET /volumes/{volume}", d.getVolume, exec},
		{"DELETE /volumes/{volume}", d.removeVolume, admin},
		{"GET " + content + "/dir", d.inVolume(d.listInVolume), ""},
		{"POST " + content + "/dir", d.inVolume(d.makeInVolume), ""},
		{"GET " + content + "/path", d.inVolume(d.statInVolume), ""},
		{"PATCH " + content + "/path", d.inVolume(d.changeInVolume), ""},
		{"DELETE " + content + "/path", d.inVolume(d.removeInVolume), ""},
		{"GET " + content + "/file", d.inVolume(d.readInVolume), ""},
		{"PUT " + content + "/file", d.inVolume(d.writeInVolume), ""},

		{"GET /templates", d.listTemplates, read},
		{"GET /v2/templates", d.listTemplates, read},
		{"GET /templates/{template}", d.getTemplate, read},
		{"PATCH /templates/{template}", d.publish, admin},
		{"PATCH /v2/templates/{template}", d.publish, admin},
		{"GET /templates/{template}/{part}", d.templatePart, read},
		{"DELETE /templates/{template}", d.removeTemplate, admin},
		{"POST /v3/templates", d.newTemplate, admin},
		{"GET /templates/{template}/files/{hash}", d.buildFiles, admin},
		{"PUT /uploads/{account}/{hash}", d.uploadFiles, ""},
		{"POST /v2/templates/{template}/builds/{build}", d.startBuild, admin},
		{"GET /templates/{template}/builds/{build}/status", d.buildStatus, read},
		{"GET /templates/{template}/builds/{build}/logs", d.buildLogs, read},
		{"POST /templates/tags", d.tagTemplate, admin},
		{"DELETE /templates/tags", d.untagTemplate, admin},

		{"GET /teams", d.teams, read},
		{"GET /teams/{team}/metrics", d.teamMetrics, read},
		{"GET /teams/{team}/metrics/max", d.teamMost, read},
	}...)
}

// controlHandler is the control API.
func (d *Dialect) controlHandler() http.Handler {
	mux := http.NewServeMux()
	for _, rt := range d.routes() {
		mux.HandleFunc(rt.pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := d.serveRoute(rt, w, r); err != nil {
				d.render(w, r, err)
			}
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		d.render(w, r, &fault{status: http.StatusNotFound, text: "no route " + r.Method + " " + r.URL.Path})
	})
	return mux
}

// serveRoute serves one request on behalf of whoever's key it carries, if that may
// do what the route does.
func (d *Dialect) serveRoute(rt route, w http.ResponseWriter, r *http.Request) error {
	if rt.scope == "" {
		return rt.handle(w, r)
	}
	ctx, leave, err := d.byKey(r)
	if err != nil {
		return err
	}
	defer leave()
	if c, err := sandbox.CallerOf(ctx); err != nil || !c.May(rt.scope) {
		return errors.Join(err, &fault{status: http.StatusForbidden, text: "the key lacks the scope " + string(rt.scope)})
	}
	return rt.handle(w, r.WithContext(ctx))
}

func (d *Dialect) health(w http.ResponseWriter, _ *http.Request) error {
	writeEmpty(w, http.StatusNoContent)
	return nil
}

// maxBody bounds a body of the control API.
const maxBody = 4 << 20

// decode reads a request's body; none is an empty one.
func decode(w http.ResponseWriter, r *http.Request, v any) error {
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return &fault{status: http.StatusRequestEntityTooLarge, text: "the body is too large"}
	case err != nil:
		return sandbox.Errorf("read body", sandbox.Invalid, "%w", err)
	case len(b) == 0:
		return nil
	}
	if err := json.Unmarshal(b, v); err != nil {
		return &fault{status: http.StatusBadRequest, text: "Error when parsing request: " + err.Error(), err: err}
	}
	return nil
}

// box is the sandbox that a path names; failed ones are gone for these clients.
func (d *Dialect) box(ctx context.Context, r *http.Request) (sandbox.Sandbox, error) {
	id := strings.TrimSuffix(r.PathValue("id"), "-"+clientID) // which older clients add
	s, err := d.engine.Get(ctx, id)
	kind := sandbox.KindOf(err)
	if kind == sandbox.NotFound || kind == sandbox.Invalid || err == nil && s.State == sandbox.Failed {
		return s, notFound(id)
	}
	return s, err
}

func notFound(id string) error {
	return &fault{status: http.StatusNotFound, text: "sandbox \"" + printable(id) + "\" doesn't exist or you don't have access to it"}
}

// printable bounds what of a client's text is given back.
func printable(s string) string {
	if len(s) > 80 {
		s = s[:80]
	}
	return s
}
