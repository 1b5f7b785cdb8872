package api

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

// statuses is the one table of kinds and HTTP statuses.
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

// renderError answers with an error. It is the only place that does.
func (a *API) renderError(w *answer, err error) {
	body := a.errorBody(w, err)
	status := statuses[body.Error.Code]
	h := w.Header()
	for _, name := range []string{"Content-Length", "Location", "Last-Modified"} {
		h.Del(name)
	}
	switch status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", "Bearer")
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		h.Set("Retry-After", "1")
	}
	var unsatisfiable *rangeError
	if errors.As(err, &unsatisfiable) {
		status = http.StatusRequestedRangeNotSatisfiable
		h.Set("Content-Range", unsatisfiable.contentRange())
	}
	// The client may have gone; then there is nobody to tell.
	_ = writeJSON(w, status, body)
}

// errorBody is the error form. What went wrong inside Berth goes to the log
// only; the client gets the operations and the request's id to ask with.
func (a *API) errorBody(w *answer, err error) wire.Error {
	d := wire.ErrorDetail{Code: sandbox.KindOf(err), Message: err.Error(), Hint: sandbox.HintOf(err), RequestID: w.request}
	if d.Code == sandbox.Internal {
		a.log.Error("internal error", "request", w.request, "error", err)
		d.Message = operations(err) + "internal error"
		d.Hint = "the server's log has the cause beside the request's id " + w.request
	}
	d.Message = strings.ToValidUTF8(d.Message, "\uFFFD")
	return wire.Error{Error: d}
}

// operations returns the operations in an error's chain, without its causes.
func operations(err error) string {
	var b strings.Builder
	var e *sandbox.Error
	for errors.As(err, &e) {
		text := strings.TrimSpace(e.Op + " " + string(e.ID))
		if text != "" {
			b.WriteString(text + ": ")
		}
		err = e.Err
	}
	return b.String()
}

// writeJSON answers with v.
func writeJSON(w http.ResponseWriter, status int, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return sandbox.Errorf("encode answer", sandbox.Internal, "%w", err)
	}
	w.Header().Set("Content-Type", wire.TypeJSON)
	w.WriteHeader(status)
	_, err = w.Write(append(b, '\n'))
	return err
}
