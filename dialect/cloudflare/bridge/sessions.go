package bridge

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"path"
	"regexp"
	"strconv"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// sessionPattern is the form of a session's id.
var sessionPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)

// errBadSession refuses what is no id of a session.
var errBadSession = invalid("Invalid session ID format")

// sessionOf is the session that a request names; "" is none.
func sessionOf(r *http.Request) (string, error) {
	id := r.Header.Get("Session-Id")
	if id != "" && !sessionPattern.MatchString(id) {
		return "", errBadSession
	}
	return id, nil
}

// sessionName is the engine's name for a session of an id, the same that the server
// inside gives it: a terminal then starts where its session is.
func sessionName(id string) string {
	const plain, hashed, fits = "cf-", "cf.", 61
	if len(id) <= fits {
		return plain + id
	}
	sum := sha256.Sum256([]byte(id))
	return hashed + hex.EncodeToString(sum[:20])
}

// createSession makes a shell that remembers from one command to the next.
func (b *Bridge) createSession(w http.ResponseWriter, r *http.Request) error {
	var req newSession
	if err := decode(w, r, &req, true); err != nil {
		return err
	}
	if req.ID == "" {
		req.ID = "session-" + strconv.FormatInt(time.Now().UnixMilli(), 10)
	}
	if !sessionPattern.MatchString(req.ID) {
		return errBadSession
	}
	id, err := b.box(r)
	if err != nil {
		return err
	}
	o := sandbox.SessionOptions{Name: sessionName(req.ID), Env: req.Env, Cwd: path.Join("/", req.Cwd), User: user, Plain: true}
	if !path.IsAbs(req.Cwd) {
		o.Cwd = path.Join(workspace, req.Cwd)
	}
	_, fresh, err := b.Engine.OpenSession(r.Context(), id, o)
	if err == nil && !fresh {
		err = errors.New("session '" + req.ID + "' already exists")
		return &fault{status: http.StatusBadGateway, code: codeSession, text: "session failed: " + err.Error()}
	}
	if err != nil {
		return failed("session failed", codeSession, err)
	}
	return writeJSON(w, made{req.ID})
}

// deleteSession ends a session with all that it runs.
func (b *Bridge) deleteSession(w http.ResponseWriter, r *http.Request) error {
	session := r.PathValue("session")
	if !sessionPattern.MatchString(session) {
		return errBadSession
	}
	id, err := b.box(r)
	if err != nil {
		return err
	}
	if err := b.Engine.CloseSession(r.Context(), id, sessionName(session)); err != nil {
		return failed("session failed", codeSession, err)
	}
	return writeJSON(w, endedSession{Success: true, SessionID: session, Timestamp: time.Now().UTC().Format(isoTime)})
}

// isoTime is how clients' own clocks write a time.
const isoTime = "2006-01-02T15:04:05.000Z"

// runInSession runs a command in a session's own shell: what it changes there stays
// for the next. The session is made if there is none.
func (b *Bridge) runInSession(ctx context.Context, id, session string, c command) (sandbox.Events, error) {
	line := c.line()
	if c.Cwd != "" {
		line = within(line, c.Cwd)
	}
	cmd := sandbox.Command{Shell: line, Timeout: c.timeout(), Lossless: true}
	name := sessionName(session)
	events, err := b.Engine.RunInSession(ctx, id, name, cmd)
	if sandbox.KindOf(err) != sandbox.NotFound {
		return events, err
	}
	if _, _, err := b.Engine.OpenSession(ctx, id, sandbox.SessionOptions{Name: name, Cwd: workspace, User: user, Plain: true}); err != nil {
		return nil, err
	}
	return b.Engine.RunInSession(ctx, id, name, cmd)
}

// within is a command that runs in a folder and returns to where the shell was.
func within(line, cwd string) string {
	return `__berth_d=$PWD; cd -- ` + quote(cwd) + ` && ` + line + "\n" +
		`{ __berth_s=$?; cd -- "$__berth_d"; unset -v __berth_d; (exit "$__berth_s"); }`
}
