package docker

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/berth-dev/berth/sandbox"
)

// statuses is the API's status of each kind.
var statuses = map[sandbox.Kind]int{
	sandbox.Invalid:      http.StatusBadRequest,
	sandbox.Unauthorized: http.StatusUnauthorized,
	sandbox.Forbidden:    http.StatusForbidden,
	sandbox.NotFound:     http.StatusNotFound,
	sandbox.Conflict:     http.StatusConflict,
	sandbox.Exhausted:    http.StatusServiceUnavailable,
	sandbox.Unsupported:  http.StatusNotImplemented,
	sandbox.Timeout:      http.StatusGatewayTimeout,
	sandbox.Unavailable:  http.StatusServiceUnavailable,
	sandbox.Internal:     http.StatusInternalServerError,
}

// render answers a request with an error. It is the only place that does.
func (d *Dialect) render(w http.ResponseWriter, r *http.Request, err error) {
	kind := sandbox.KindOf(err)
	text := err.Error()
	if kind == sandbox.Internal {
		d.log.Error("serve a container's call", "method", r.Method, "path", r.URL.Path, "error", err)
		text = "internal error"
	}
	if hint := sandbox.HintOf(err); hint != "" {
		text += " (" + hint + ")"
	}
	writeJSON(w, statuses[kind], map[string]string{"message": text})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		status, b = http.StatusInternalServerError, []byte(`{"message":"internal error"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // who has left misses nothing
}

func noContainer(name string) error {
	return &sandbox.Error{Op: "find container", Kind: sandbox.NotFound, Err: fmt.Errorf("No such container: %.200s", name)}
}

func noImage(ref string) error {
	return &sandbox.Error{Op: "find image", Kind: sandbox.NotFound, Err: fmt.Errorf("No such image: %.200s", ref),
		Hint: "build it: berth docker build -t " + printable(ref)}
}

func notRunning(name string) error {
	return &sandbox.Error{Op: "signal container", Kind: sandbox.Conflict, Err: fmt.Errorf("container %.200s is not running", name)}
}

func invalid(format string, args ...any) error {
	return sandbox.Errorf("read request", sandbox.Invalid, format, args...)
}

var errNotServed = errors.New("it is not served here")

func unsupported(what, hint string) error {
	return &sandbox.Error{Op: what, Kind: sandbox.Unsupported, Err: errNotServed, Hint: hint}
}

// printable is a text of a client's without what a terminal would act on.
func printable(s string) string { return fmt.Sprintf("%.200q", s) }
