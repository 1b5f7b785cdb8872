package cloudflare

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
)

// route is one line of the surface.
type route struct {
	pattern string // method and path
	handle  func(w http.ResponseWriter, r *http.Request) error
}

func (s *Server) table() []route {
	return []route{
		{"GET /{$}", s.root},
		{"GET /api/ping", asked((*box).ping)},
		{"GET /api/health", asked((*box).ping)},
		{"GET /api/version", asked((*box).version)},
		{"GET /api/commands", asked((*box).commands)},

		{"POST /api/execute", reply((*box).execute)},
		{"POST /api/execute/stream", streamed((*box).executeStream)},

		{"POST /api/process/start", reply((*box).startProcess)},
		{"GET /api/process/list", asked((*box).listProcesses)},
		{"DELETE /api/process/kill-all", asked((*box).killAll)},
		{"GET /api/process/{process}", named("process", (*box).getProcess)},
		{"DELETE /api/process/{process}", named("process", (*box).killProcess)},
		{"GET /api/process/{process}/logs", named("process", (*box).processLogs)},
		{"GET /api/process/{process}/stream", s.endless(s.processStream)},
		{"POST /api/port-watch", s.endless(streamed((*box).watchPort))},

		{"POST /api/write", reply((*box).writeFile)},
		{"POST /api/read", reply((*box).readFile)},
		{"POST /api/read/stream", streamed((*box).readStream)},
		{"POST /api/mkdir", reply((*box).mkdir)},
		{"POST /api/delete", reply((*box).deleteFile)},
		{"POST /api/rename", reply((*box).renameFile)},
		{"POST /api/move", reply((*box).moveFile)},
		{"POST /api/list-files", reply((*box).listFiles)},
		{"POST /api/exists", reply((*box).exists)},
		{"POST /api/watch", s.endless(streamed((*box).watch))},
		{"POST /api/watch/check", reply((*box).checkChanges)},

		{"POST /api/git/checkout", reply((*box).checkout)},

		{"POST /api/contexts", reply((*box).createContext)},
		{"GET /api/contexts", asked((*box).listContexts)},
		{"DELETE /api/contexts/{context}", named("context", (*box).deleteContext)},
		{"POST /api/execute/code", streamed((*box).runCode)},
		{"GET /api/interpreter/health", asked((*box).codeHealth)},

		{"POST /api/session/create", reply((*box).createSession)},
		{"POST /api/session/delete", reply((*box).deleteSession)},
		{"GET /api/session/list", asked((*box).listSessions)},

		{"POST /api/backup/create", reply((*box).createArchive)},
		{"POST /api/backup/restore", reply((*box).restoreArchive)},
		{"POST /api/backup/upload-parts", reply((*box).uploadParts)},

		{"GET /ws", s.endless(s.serveSocket)},
		{"GET /api/ws", s.endless(s.serveSocket)},
		{"GET /rpc", s.endless(s.serveRPC)},
		{"GET /ws/pty", s.endless(s.serveTerminal)},
	}
}

func (s *Server) mux() *http.ServeMux {
	mux := http.NewServeMux()
	for _, one := range s.table() {
		mux.HandleFunc(one.pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := one.handle(w, r); err != nil {
				s.render(w, err)
			}
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.render(w, &fault{code: unknownError, status: http.StatusNotFound, text: "The requested endpoint was not found: " + r.Method + " " + bounded(r.URL.Path)})
	})
	return mux
}

func bounded(s string) string {
	if len(s) > 80 {
		s = s[:80]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// maxBody bounds a body: a file of 32 MiB in base64 fits.
const maxBody = 64 << 20

// decode reads a request's body.
func decode(w http.ResponseWriter, r *http.Request, v any) error {
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return &fault{code: fileTooLarge, text: "the body is larger than 64 MiB"}
	case err != nil:
		return errGone
	}
	if err := json.Unmarshal(b, v); err != nil {
		return &fault{code: validationFailed, text: "Invalid JSON in request body: " + err.Error(), err: err}
	}
	return nil
}

// reply serves an operation on what a body says.
func reply[R any](do func(*box, context.Context, R) (any, error)) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		var q R
		if err := decode(w, r, &q); err != nil {
			return err
		}
		v, err := do(boxOf(r.Context()), r.Context(), q)
		if err == nil {
			writeJSON(w, http.StatusOK, v)
		}
		return err
	}
}

// asked serves an operation that is told nothing.
func asked(do func(*box, context.Context) (any, error)) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		v, err := do(boxOf(r.Context()), r.Context())
		if err == nil {
			writeJSON(w, http.StatusOK, v)
		}
		return err
	}
}

// named serves an operation on what the path names.
func named(part string, do func(*box, context.Context, string) (any, error)) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		v, err := do(boxOf(r.Context()), r.Context(), r.PathValue(part))
		if err == nil {
			writeJSON(w, http.StatusOK, v)
		}
		return err
	}
}

// streamed serves an operation on what a body says that answers with events.
func streamed[R any](do func(*box, context.Context, R, stream) error) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		var q R
		if err := decode(w, r, &q); err != nil {
			return err
		}
		b := boxOf(r.Context())
		b.tell(w, r, func(ctx context.Context, out stream) error { return do(b, ctx, q, out) })
		return nil
	}
}

func (s *Server) processStream(w http.ResponseWriter, r *http.Request) error {
	b, id := boxOf(r.Context()), r.PathValue("process")
	s.tell(w, r, func(ctx context.Context, out stream) error { return b.processEvents(ctx, id, out) })
	return nil
}

// root says that the server is there, which is what clients wait for.
func (s *Server) root(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, "Hello from the sandbox")
	return nil
}
