package bridge

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/berth-dev/berth/sandbox"
)

// The codes of errors, which clients compare.
const (
	codeInvalid       = "invalid_request"
	codeUnauthorized  = "unauthorized"
	codeLarge         = "payload_too_large"
	codeExec          = "exec_error"
	codeExecTransport = "exec_transport_error"
	codeNoFile        = "workspace_read_not_found"
	codeRead          = "workspace_archive_read_error"
	codeWrite         = "workspace_archive_write_error"
	codeMount         = "mount_error"
	codeUnmount       = "unmount_error"
	codeSession       = "session_error"
	codeTunnel        = "tunnel_error"
	codePool          = "pool_error"
	codeFull          = "capacity_exceeded"
)

// fault is an error as clients get it.
type fault struct {
	status int
	code   string
	text   string
	err    error // nil, or the cause
}

func (f *fault) Error() string { return f.text }
func (f *fault) Unwrap() error { return f.err }

func invalid(text string) error {
	return &fault{status: http.StatusBadRequest, code: codeInvalid, text: text}
}

func forbidden(text string) error {
	return &fault{status: http.StatusForbidden, code: codeInvalid, text: text}
}

// failed is an operation's error with the code that the operation has, as 502. What is
// about the caller and not about the operation keeps its own.
func failed(what, code string, err error) error {
	var f *fault
	switch kind := sandbox.KindOf(err); {
	case err == nil || errors.As(err, &f) || kind == sandbox.Unauthorized || kind == sandbox.Forbidden:
		return err
	}
	return &fault{status: http.StatusBadGateway, code: code, text: what, err: err}
}

// faultOf is an error in the clients' terms. The text of an internal one is logged
// and not told.
func (b *Bridge) faultOf(r *http.Request, err error) *fault {
	var f *fault
	if !errors.As(err, &f) {
		f = &fault{status: http.StatusBadGateway, code: codePool, err: err}
		switch sandbox.KindOf(err) {
		case sandbox.Unauthorized:
			f = &fault{status: http.StatusUnauthorized, code: codeUnauthorized, text: "Unauthorized"}
		case sandbox.Forbidden:
			f.status, f.code = http.StatusForbidden, codeInvalid
		}
	}
	out := *f
	if f.err == nil {
		return &out
	}
	detail := f.err.Error()
	if sandbox.KindOf(f.err) == sandbox.Internal {
		b.Logger.Error("internal error", "method", r.Method, "path", r.URL.Path, "error", f.err)
		detail = "internal error"
	} else if hint := sandbox.HintOf(f.err); hint != "" {
		detail += " (" + hint + ")"
	}
	out.text = strings.ToValidUTF8(strings.TrimPrefix(f.text+": "+detail, ": "), "\uFFFD")
	return &out
}

// render answers a request with an error. It is the only place that does.
func (b *Bridge) render(w http.ResponseWriter, r *http.Request, err error) {
	f := b.faultOf(r, err)
	if f.status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(f.status)
	_ = json.NewEncoder(w).Encode(problem{f.text, f.code}) // a client that has gone cannot be told
}

// writeJSON answers with v.
func writeJSON(w http.ResponseWriter, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return sandbox.Errorf("encode answer", sandbox.Internal, "%w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body) // a client that has gone cannot be told
	return nil
}

// printable bounds what of a client's text is given back.
func printable(s string) string {
	if len(s) > 80 {
		s = s[:80]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
