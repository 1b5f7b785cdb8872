package edge

import (
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"strings"

	"github.com/berth-dev/berth/sandbox"
)

var (
	errConnect = errors.New("CONNECT is not for previews")
	errCrowded = &sandbox.Error{Kind: sandbox.Exhausted, Err: errors.New("too many requests to this sandbox are under way"),
		Hint: "try again in a moment"}
)

// statuses is the status of each kind, as a proxy says it.
var statuses = map[sandbox.Kind]int{
	sandbox.Invalid:     http.StatusMethodNotAllowed,
	sandbox.NotFound:    http.StatusNotFound,
	sandbox.Conflict:    http.StatusServiceUnavailable, // it has failed, or is not to be woken
	sandbox.Exhausted:   http.StatusServiceUnavailable,
	sandbox.Timeout:     http.StatusGatewayTimeout,
	sandbox.Unavailable: http.StatusBadGateway,
	sandbox.Unsupported: http.StatusBadGateway,
}

// page is what is shown in place of an answer.
type page struct {
	Status  int
	Title   string
	Text    string
	Command string // to try, if there is one
}

// stranger is the one page of all that is not there or not for the visitor.
var stranger = page{Status: http.StatusNotFound, Title: "Nothing here",
	Text: "There is no such page, or it is not for you. Ask its owner for a link."}

// refuse answers with an error of the engine's. Of what is wrong inside, the log
// alone has the cause.
func (e *Edge) refuse(w http.ResponseWriter, r *http.Request, err error) {
	kind := sandbox.KindOf(err)
	if kind == sandbox.NotFound {
		show(w, r, stranger)
		return
	}
	status, ok := statuses[kind]
	p := page{Status: status, Title: http.StatusText(status), Text: err.Error(), Command: sandbox.HintOf(err)}
	if !ok {
		e.log.Error("preview", "host", r.Host, "error", err)
		p = page{Status: http.StatusInternalServerError, Title: "Internal error", Text: "The server's log has the cause."}
	}
	show(w, r, p)
}

// noServer says that nobody listens, and what would.
func (e *Edge) noServer(w http.ResponseWriter, r *http.Request, v *visitor) {
	show(w, r, page{Status: http.StatusBadGateway, Title: fmt.Sprintf("Nothing listens on port %d", v.Port),
		Text:    fmt.Sprintf("Sandbox %s runs, but no server in it takes connections on port %d. Start one, then load this page again:", v.Sandbox, v.Port),
		Command: fmt.Sprintf("berth exec -d %s -- python3 -m http.server %d", v.Sandbox, v.Port)})
}

// noAnswer says that who listens does not speak HTTP, or has gone.
func (e *Edge) noAnswer(w http.ResponseWriter, r *http.Request, v *visitor, err error) {
	show(w, r, page{Status: http.StatusBadGateway, Title: fmt.Sprintf("No answer from port %d", v.Port),
		Text: fmt.Sprintf("The server on port %d of sandbox %s ended the connection without an HTTP answer: %.300s", v.Port, v.Sandbox, err)})
}

var layout = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{{.Title}}</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:42em;margin:15vh auto;padding:0 1em;color:#222;background:#fff}
pre{background:#f2f2f2;padding:.8em;overflow:auto}@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}pre{background:#2a2a2a}}</style>
<h1>{{.Title}}</h1><p>{{.Text}}</p>{{with .Command}}<pre>{{.}}</pre>{{end}}
</html>
`))

// show writes a page, as HTML to who asks for that and as text to all others.
func show(w http.ResponseWriter, r *http.Request, p page) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	if p.Status == http.StatusServiceUnavailable {
		h.Set("Retry-After", "1")
	}
	var b strings.Builder
	if strings.Contains(r.Header.Get("Accept"), "text/html") {
		h.Set("Content-Type", "text/html; charset=utf-8")
		if err := layout.Execute(&b, p); err != nil {
			panic(err) // strings and a number alone
		}
	} else {
		h.Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprintf(&b, "%s\n%s\n", p.Title, p.Text)
		if p.Command != "" {
			fmt.Fprintf(&b, "\n    %s\n", p.Command)
		}
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write([]byte(b.String())) // the client may have gone
}
