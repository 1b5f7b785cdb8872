package guest

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	guestv1 "github.com/berth-dev/berth/guestapi/v1"
	"github.com/berth-dev/berth/guestapi/v1/guestv1connect"
)

// maxSessions bounds the sessions that are open at once.
const maxSessions = 64

// sessionsDir holds the files of sessions, which their users may use but not
// replace.
const sessionsDir = "/run/berth/sessions"

// sessions is all shell sessions, and the service that answers for them.
type sessions struct {
	guest *Guest

	mu     sync.Mutex
	closed bool
	count  int
	byName map[string]*session
}

var _ guestv1connect.SessionsHandler = (*sessions)(nil)

func newSessions(g *Guest) *sessions { return &sessions{guest: g, byName: map[string]*session{}} }

// open gives the session of a name, made if there is none.
func (t *sessions) open(r *guestv1.OpenSessionRequest) (s *session, created bool, err error) {
	if !namePattern.MatchString(r.Name) {
		return nil, false, refuse(invalid, "a name has 1 to 64 characters of A-Z a-z 0-9 . _ - and starts with a letter or a digit", "%.80q is not a session's name", r.Name)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.byName[r.Name]; s != nil {
		return s, false, t.sameUser(s, r.User)
	}
	switch {
	case t.closed:
		return nil, false, refuse(connect.CodeUnavailable, "", "the sandbox is ending")
	case len(t.byName) >= maxSessions:
		return nil, false, refuse(exhausted, "close some", "%d sessions are open", len(t.byName))
	}
	s, err = t.make(r)
	if err != nil {
		return nil, false, err
	}
	t.byName[r.Name] = s
	go s.serve() // ends with close
	return s, true, nil
}

// sameUser refuses a session that is another user's.
func (t *sessions) sameUser(s *session, user string) error {
	if user == "" || t.guest.scratch() {
		return nil
	}
	who, err := findAccount(user)
	if err != nil {
		return err
	}
	if s.plan.credential != nil && who.uid != s.plan.credential.Uid {
		return refuse(conflict, "take another name, or close it first", "session %q is of user %s", s.name, s.user)
	}
	return nil
}

// make settles who the session is of, and which shell it has.
func (t *sessions) make(r *guestv1.OpenSessionRequest) (*session, error) {
	var pl *plan
	var err error
	var d *dialect
	for i := range dialects {
		d = &dialects[i]
		pl, err = t.guest.plan(&guestv1.StartRequest{Argv: [][]byte{[]byte(d.program)}, Env: r.Env, Cwd: r.Cwd, User: r.User})
		if err == nil || codeOf(err) != notFound {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	t.count++
	s := &session{name: r.Name, user: pl.user, dialect: d, plain: r.Plain, plan: pl, kids: t.guest.procs.kids,
		dir: filepath.Join("/", t.guest.config.Scratch, sessionsDir, strconv.Itoa(t.count)), scratch: t.guest.config.Scratch,
		created: time.Now(), cwd: pl.cwd, wake: make(chan struct{}, 1), ended: make(chan struct{})}
	return s, fromOS(s.makeDir())
}

// makeDir makes the folder of the session's files. Its user may go through it,
// not change it.
func (s *session) makeDir() error {
	if err := os.MkdirAll(filepath.Dir(s.dir), 0o711); err != nil {
		return err
	}
	if err := os.RemoveAll(s.dir); err != nil { // of a guest before this one
		return err
	}
	return os.Mkdir(s.dir, 0o711)
}

func (t *sessions) find(name string) (*session, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.byName[name]; s != nil {
		return s, nil
	}
	return nil, refuse(notFound, "open it first; the list of sessions has those that are", "no session %.80q", name)
}

// close ends every session; later ones are refused.
func (t *sessions) close() {
	t.mu.Lock()
	t.closed = true
	all := t.byName
	t.byName = map[string]*session{}
	t.mu.Unlock()
	for _, s := range all {
		s.close()
	}
}

func (t *sessions) OpenSession(_ context.Context, r *connect.Request[guestv1.OpenSessionRequest]) (*connect.Response[guestv1.OpenSessionResponse], error) {
	s, created, err := t.open(r.Msg)
	if err != nil {
		return nil, err
	}
	return answer(&guestv1.OpenSessionResponse{Session: s.describe(), Created: created}, nil)
}

func (t *sessions) RunInSession(ctx context.Context, r *connect.Request[guestv1.RunInSessionRequest], out *connect.ServerStream[guestv1.ProcessEvent]) error {
	s, err := t.find(r.Msg.Session)
	if err != nil {
		return err
	}
	if err := checkRun(r.Msg); err != nil {
		return err
	}
	text := commandText(r.Msg)
	described := &plan{argv: []string{s.dialect.program, "-c", text}, cwd: string(s.describe().Cwd), user: s.user}
	p, cursor, err := t.guest.procs.begin(described, &guestv1.StartRequest{Name: r.Msg.Name, Detach: r.Msg.Detach, Lossless: r.Msg.Lossless}, 0,
		func(p *process) error { return s.enqueue(r.Msg, p) })
	if err != nil {
		return err
	}
	err = follow(ctx, p, cursor, out.Send)
	cursor.close()
	t.guest.part(p)
	return err
}

func checkRun(r *guestv1.RunInSessionRequest) error {
	if (len(r.Argv) == 0) == (len(r.Shell) == 0) {
		return refuse(invalid, "give argv or shell", "need exactly one of argv and shell")
	}
	if strings.IndexByte(commandText(r), 0) >= 0 {
		return refuse(invalid, "", "the command holds a NUL byte")
	}
	return nil
}

func (t *sessions) ListSessions(context.Context, *connect.Request[guestv1.ListSessionsRequest]) (*connect.Response[guestv1.ListSessionsResponse], error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := &guestv1.ListSessionsResponse{}
	for _, s := range t.byName {
		out.Sessions = append(out.Sessions, s.describe())
	}
	slices.SortFunc(out.Sessions, func(a, b *guestv1.Session) int { return strings.Compare(a.Name, b.Name) })
	return answer(out, nil)
}

func (t *sessions) CancelSession(_ context.Context, r *connect.Request[guestv1.CancelSessionRequest]) (*connect.Response[guestv1.CancelSessionResponse], error) {
	s, err := t.find(r.Msg.Session)
	if err != nil {
		return nil, err
	}
	var only *run
	if r.Msg.Process != "" {
		p, err := t.guest.procs.find(r.Msg.Process)
		if err != nil {
			return nil, err
		}
		var ok bool
		if only, ok = p.leader.(*run); !ok || only.session != s {
			return nil, refuse(notFound, "", "process %s is not a command of session %q", p.id, s.name)
		}
	}
	return answer(&guestv1.CancelSessionResponse{Cancelled: int32(s.cancel(only))}, nil)
}

func (t *sessions) CloseSession(_ context.Context, r *connect.Request[guestv1.CloseSessionRequest]) (*connect.Response[guestv1.CloseSessionResponse], error) {
	s, err := t.find(r.Msg.Session)
	if err != nil {
		return nil, err
	}
	s.close()
	t.mu.Lock()
	if t.byName[s.name] == s {
		delete(t.byName, s.name)
	}
	t.mu.Unlock()
	return answer(&guestv1.CloseSessionResponse{}, nil)
}
