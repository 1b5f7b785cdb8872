package bridge

import (
	"context"
	"net/http"
	"strings"

	"github.com/berth-dev/berth/sandbox"
)

// route is one line of the surface. openapi.json describes each.
type route struct {
	method  string
	pattern string // its parts are texts, or {name}; a last * takes what is left
	handle  handler
	scope   sandbox.Scope // that the key needs; "": no key is asked for

	operator bool // only the operator's key will do
	byQuery  bool // the key may come as the query's token: people open it in a browser
}

// handler serves a request on behalf of the caller in its context, or says why not;
// its error is rendered by ServeHTTP.
type handler func(w http.ResponseWriter, r *http.Request) error

func (b *Bridge) table() []route {
	const (
		read, exec, admin = sandbox.ScopeRead, sandbox.ScopeExec, sandbox.ScopeAdmin
		box               = "/v1/sandbox/{id}"
	)
	return []route{
		{method: "GET", pattern: "/health", handle: b.health},
		{method: "GET", pattern: "/v1/openapi.json", handle: b.openapi, scope: read, byQuery: true},
		{method: "GET", pattern: "/v1/openapi.html", handle: b.openapiPage, scope: read, byQuery: true},
		{method: "GET", pattern: "/v1/openapi", handle: b.openapiPage, scope: read, byQuery: true},

		{method: "POST", pattern: "/v1/sandbox", handle: b.create, scope: admin},
		{method: "DELETE", pattern: box, handle: b.remove, scope: admin},
		{method: "GET", pattern: box + "/running", handle: b.running, scope: exec},
		{method: "POST", pattern: box + "/exec", handle: b.exec, scope: exec},
		{method: "GET", pattern: box + "/file/*", handle: b.readFile, scope: read},
		{method: "PUT", pattern: box + "/file/*", handle: b.writeFile, scope: exec},
		{method: "POST", pattern: box + "/persist", handle: b.persist, scope: read},
		{method: "POST", pattern: box + "/hydrate", handle: b.hydrate, scope: exec},
		{method: "GET", pattern: box + "/pty", handle: b.pty, scope: exec},
		{method: "POST", pattern: box + "/session", handle: b.createSession, scope: exec},
		{method: "DELETE", pattern: box + "/session/{session}", handle: b.deleteSession, scope: exec},
		{method: "POST", pattern: box + "/mount", handle: b.mount, scope: exec},
		{method: "POST", pattern: box + "/unmount", handle: b.unmount, scope: exec},
		{method: "POST", pattern: box + "/tunnel/{port}", handle: b.openTunnel, scope: admin},
		{method: "DELETE", pattern: box + "/tunnel/{port}", handle: b.closeTunnel, scope: admin},

		{method: "GET", pattern: "/v1/pool/stats", handle: b.poolStats, scope: read},
		{method: "POST", pattern: "/v1/pool/prime", handle: b.primePool, scope: exec},
		{method: "POST", pattern: "/v1/pool/shutdown-prewarmed", handle: b.emptyPool, operator: true, scope: admin},
	}
}

// serve finds the route of a path and serves it, if the key may. Go's own multiplexer
// would redirect a file's path with dots in it.
func (b *Bridge) serve(w http.ResponseWriter, r *http.Request, path string) error {
	for _, rt := range b.routes {
		if rt.method == r.Method && match(rt.pattern, path, r) {
			return b.serveRoute(rt, w, r)
		}
	}
	return &fault{status: http.StatusNotFound, code: codeInvalid, text: "no route " + r.Method + " " + printable(path)}
}

// match reports whether a path has the form of a pattern, and notes its values.
func match(pattern, path string, r *http.Request) bool {
	want, got := strings.Split(pattern, "/"), strings.Split(path, "/")
	for i, w := range want {
		switch {
		case i >= len(got):
			return false
		case w == "*":
			r.SetPathValue("*", strings.Join(got[i:], "/"))
			return true
		case strings.HasPrefix(w, "{"):
			r.SetPathValue(w[1:len(w)-1], got[i])
		case w != got[i]:
			return false
		}
	}
	return len(want) == len(got)
}

// serveRoute serves one request on behalf of whoever's key it carries.
func (b *Bridge) serveRoute(rt route, w http.ResponseWriter, r *http.Request) error {
	if rt.scope == "" {
		return rt.handle(w, r)
	}
	ctx, leave, err := b.byKey(r, rt.byQuery)
	if err != nil {
		return err
	}
	defer leave()
	c, err := sandbox.CallerOf(ctx)
	switch {
	case err != nil:
		return err
	case rt.operator && !c.Operator:
		return forbidden("this is for the server's operator")
	case !c.May(rt.scope):
		return forbidden("the key lacks the scope " + string(rt.scope))
	}
	if id := r.PathValue("id"); id != "" && !idPattern.MatchString(id) {
		return invalid("Invalid sandbox ID format")
	}
	return rt.handle(w, r.WithContext(ctx))
}

// byKey lets in whoever's key a request carries.
func (b *Bridge) byKey(r *http.Request, byQuery bool) (context.Context, func(), error) {
	scheme, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if byQuery && scheme == "" {
		scheme, key = "Bearer", r.URL.Query().Get("token")
	}
	digits, ok := strings.CutPrefix(strings.TrimSpace(key), sandbox.KeyPrefix)
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return nil, nil, &fault{status: http.StatusUnauthorized, code: codeUnauthorized, text: "Unauthorized"}
	}
	return b.Enter(r.Context(), digits)
}

func (b *Bridge) health(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, ok{true})
}
