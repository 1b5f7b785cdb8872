package e2b

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"connectrpc.com/connect"

	"github.com/berth-dev/berth/sandbox"
)

// statuses is the control API's status of each kind.
var statuses = map[sandbox.Kind]int{
	sandbox.Invalid:      http.StatusBadRequest,
	sandbox.Unauthorized: http.StatusUnauthorized,
	sandbox.Forbidden:    http.StatusForbidden,
	sandbox.NotFound:     http.StatusNotFound,
	sandbox.Conflict:     http.StatusConflict,
	sandbox.Exhausted:    http.StatusTooManyRequests,
	sandbox.Unsupported:  http.StatusNotImplemented,
	sandbox.Timeout:      http.StatusGatewayTimeout,
	sandbox.Unavailable:  http.StatusServiceUnavailable,
	sandbox.Internal:     http.StatusInternalServerError,
}

// codes is the guest services' code of each kind.
var codes = map[sandbox.Kind]connect.Code{
	sandbox.Invalid:      connect.CodeInvalidArgument,
	sandbox.Unauthorized: connect.CodeUnauthenticated,
	sandbox.Forbidden:    connect.CodePermissionDenied,
	sandbox.NotFound:     connect.CodeNotFound,
	sandbox.Conflict:     connect.CodeFailedPrecondition,
	sandbox.Exhausted:    connect.CodeResourceExhausted,
	sandbox.Unsupported:  connect.CodeUnimplemented,
	sandbox.Timeout:      connect.CodeDeadlineExceeded,
	sandbox.Unavailable:  connect.CodeUnavailable,
	sandbox.Internal:     connect.CodeInternal,
}

// fault is an error with a status of its own, or a text that clients compare.
type fault struct {
	status int
	text   string
	slug   string // "", or what programs tell it by
	err    error  // nil, or the cause
}

func (f *fault) Error() string { return f.text }
func (f *fault) Unwrap() error { return f.err }

// render answers a request of the control API with an error. It is the only place
// that does.
func (d *Dialect) render(w http.ResponseWriter, r *http.Request, err error) {
	status, text := statuses[sandbox.KindOf(err)], err.Error()
	slug := ""
	var f *fault
	switch {
	case errors.As(err, &f):
		status, text, slug = f.status, f.text, f.slug
	case status == http.StatusInternalServerError:
		d.log.Error("internal error", "method", r.Method, "path", r.URL.Path, "error", err)
		text = "internal error"
	default:
		text = withHint(text, err)
	}
	if status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	writeJSON(w, status, apiError{Code: status, Message: strings.ToValidUTF8(text, "\uFFFD"), ErrorCode: slug})
}

func withHint(text string, err error) string {
	if hint := sandbox.HintOf(err); hint != "" {
		return text + " (" + hint + ")"
	}
	return text
}

// rpcError is an error as the guest's services give it.
func (d *Dialect) rpcError(err error) error {
	var already *connect.Error
	if err == nil || errors.As(err, &already) {
		return err
	}
	if errors.Is(err, sandbox.ErrRemoved) {
		return connect.NewError(connect.CodeUnavailable, errGone)
	}
	code := codes[sandbox.KindOf(err)]
	if code == connect.CodeInternal {
		d.log.Error("internal error", "error", err)
		return connect.NewError(code, errors.New("internal error"))
	}
	return connect.NewError(code, errors.New(strings.ToValidUTF8(withHint(err.Error(), err), "\uFFFD")))
}

// writeJSON answers with v. A client that has gone cannot be told.
func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // of this package's own forms
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b)
}

// writeEmpty answers without a body; clients need its length to be told.
func writeEmpty(w http.ResponseWriter, status int) {
	if status != http.StatusNoContent {
		w.Header().Set("Content-Length", "0")
	}
	w.WriteHeader(status)
}
