package api

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/berth-dev/berth/sandbox"
)

// route is one line of the API's surface. openapi.json describes each.
type route struct {
	method string
	path   string
	handle handler
	open   bool // needs no key

	// anywhere lets pages of other sites use it too: its URL itself is the
	// permission, and a browser adds none.
	anywhere bool
}

// handler serves a request or says why not; its error is rendered by guarded.
type handler func(w http.ResponseWriter, r *http.Request) error

func (a *API) routes() []route {
	const (
		box   = "/v1/sandboxes/{id}"
		procs = box + "/processes"
		proc  = procs + "/{process}"
		terms = box + "/terminals"
		term  = terms + "/{terminal}"
		files = box + "/files"
	)
	return []route{
		{method: "GET", path: "/healthz", handle: a.health, open: true},
		{method: "GET", path: "/v1/openapi.json", handle: a.openapi, open: true},
		{method: "GET", path: "/v1/status", handle: a.status},

		{method: "POST", path: "/v1/sandboxes", handle: a.create},
		{method: "GET", path: "/v1/sandboxes", handle: a.list},
		{method: "GET", path: box, handle: a.get},
		{method: "PATCH", path: box, handle: a.update},
		{method: "DELETE", path: box, handle: a.remove},
		{method: "POST", path: box + "/pause", handle: a.change(a.engine.Pause)},
		{method: "POST", path: box + "/resume", handle: a.change(a.engine.Resume)},
		{method: "POST", path: box + "/stop", handle: a.change(a.engine.Stop)},
		{method: "POST", path: box + "/start", handle: a.change(a.engine.Start)},
		{method: "POST", path: box + "/keepalive", handle: a.keepAlive},

		{method: "POST", path: box + "/exec", handle: a.exec},
		{method: "GET", path: procs, handle: a.processes},
		{method: "POST", path: procs, handle: a.startProcess},
		{method: "GET", path: proc, handle: a.process},
		{method: "DELETE", path: proc, handle: a.removeProcess},
		{method: "GET", path: proc + "/output", handle: a.attach},
		{method: "GET", path: proc + "/wait", handle: a.wait},
		{method: "POST", path: proc + "/input", handle: a.input},
		{method: "POST", path: proc + "/signal", handle: a.signal},
		{method: "GET", path: box + "/usage", handle: a.usage},

		{method: "GET", path: box + "/sessions", handle: a.sessions},
		{method: "POST", path: box + "/sessions", handle: a.openSession},
		{method: "POST", path: box + "/sessions/{session}/run", handle: a.runInSession},
		{method: "POST", path: box + "/sessions/{session}/cancel", handle: a.cancelSession},
		{method: "DELETE", path: box + "/sessions/{session}", handle: a.closeSession},

		{method: "GET", path: terms, handle: a.terminals},
		{method: "POST", path: terms, handle: a.openTerminal},
		{method: "GET", path: term, handle: a.terminal},
		{method: "DELETE", path: term, handle: a.closeTerminal},
		{method: "POST", path: term + "/input", handle: a.typeTerminal},
		{method: "POST", path: term + "/resize", handle: a.resizeTerminal},
		{method: "POST", path: term + "/signal", handle: a.signalTerminal},

		{method: "GET", path: files, handle: a.readFile},
		{method: "HEAD", path: files, handle: a.headFile},
		{method: "PUT", path: files, handle: a.writeFile},
		{method: "DELETE", path: files, handle: a.removeFile},
		{method: "GET", path: files + "/stat", handle: a.stat},
		{method: "GET", path: files + "/list", handle: a.listDir},
		{method: "POST", path: files + "/mkdir", handle: a.makeDir},
		{method: "POST", path: files + "/move", handle: a.move},
		{method: "POST", path: files + "/change", handle: a.changeFile},
		{method: "POST", path: files + "/copy", handle: a.copyFile},
		{method: "POST", path: files + "/link", handle: a.linkFile},
		{method: "GET", path: files + "/hash", handle: a.hashFile},
		{method: "GET", path: files + "/attributes", handle: a.attributes},
		{method: "POST", path: files + "/attributes", handle: a.setAttributes},
		{method: "GET", path: files + "/archive", handle: a.archive},
		{method: "PUT", path: files + "/archive", handle: a.unpack},
		{method: "POST", path: files + "/sign", handle: a.signFile},
		{method: "GET", path: files + "/signed", handle: a.readSigned, open: true, anywhere: true},
		{method: "HEAD", path: files + "/signed", handle: a.readSigned, open: true, anywhere: true},
		{method: "PUT", path: files + "/signed", handle: a.writeSigned, open: true, anywhere: true},
		{method: "GET", path: box + "/watch", handle: a.watch},

		{method: "GET", path: "/v1/events", handle: a.changes},
		{method: "GET", path: "/v1/webhooks", handle: a.webhooks},
		{method: "POST", path: "/v1/webhooks", handle: a.createWebhook},
		{method: "GET", path: "/v1/webhooks/{webhook}", handle: a.webhook},
		{method: "DELETE", path: "/v1/webhooks/{webhook}", handle: a.removeWebhook},

		{method: "GET", path: "/v1/templates", handle: a.templates},
		{method: "POST", path: "/v1/templates", handle: a.buildTemplate},
		{method: "GET", path: "/v1/templates/{name}", handle: a.template},
		{method: "DELETE", path: "/v1/templates/{name}", handle: a.removeTemplate},
	}
}

// noRoute answers what no route takes, and says which methods the path has.
func (a *API) noRoute(_ http.ResponseWriter, r *http.Request) error {
	e := &sandbox.Error{Kind: sandbox.NotFound, Err: fmt.Errorf("nothing is served at %s %.200q", r.Method, r.URL.Path),
		Hint: "/v1/openapi.json lists what is"}
	var has []string
	for _, m := range []string{"GET", "PUT", "POST", "PATCH", "DELETE"} {
		other := r.Clone(r.Context())
		other.Method = m
		if _, pattern := a.mux.Handler(other); pattern != "/" && pattern != "" {
			has = append(has, m)
		}
	}
	if len(has) > 0 && !slices.Contains(has, r.Method) {
		e.Hint = "this path takes " + strings.Join(has, ", ")
	}
	return e
}
