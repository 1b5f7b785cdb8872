package bridge

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// defaultTerminal is the session of a terminal that names none. Who come without a
// name share one.
const defaultTerminal = "sandbox-default"

// pty joins a WebSocket to the terminal of a session. The frames are those of the
// server inside.
func (b *Bridge) pty(w http.ResponseWriter, r *http.Request) error {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return invalid("WebSocket upgrade required")
	}
	q := r.URL.Query()
	session, err := sessionOf(r)
	if err != nil {
		return err
	}
	if s := q.Get("session"); s != "" {
		session = s
	}
	if session == "" {
		session = defaultTerminal
	} else if !sessionPattern.MatchString(session) {
		return errBadSession
	}
	to := url.Values{"sessionId": {session}}
	for name, fallback := range map[string]string{"cols": "80", "rows": "24"} {
		text := q.Get(name)
		if text == "" {
			text = fallback
		}
		if _, err := strconv.ParseUint(text, 10, 16); err != nil {
			return invalid("cols and rows must be valid numbers")
		}
		to.Set(name, text)
	}
	if shell := q.Get("shell"); shell != "" {
		to.Set("shell", shell)
	}
	id, err := b.box(r)
	if err != nil {
		return err
	}
	inner := r.Clone(r.Context())
	inner.URL = &url.URL{Path: "/ws/pty", RawQuery: to.Encode()}
	inner.RequestURI = inner.URL.RequestURI()
	b.Inside(id).ServeHTTP(w, inner)
	return nil
}
