// Package e2b serves E2B's clients, unmodified: its control API, and what they
// find on the ports of a sandbox.
//
// It translates. Every handler reads E2B's form, calls a verb of the engine and
// writes E2B's form. It keeps nothing: access tokens are derived from a secret and
// the sandbox's id.
package e2b

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"

	"github.com/berth-dev/berth/keylock"
	"github.com/berth-dev/berth/sandbox"
)

// Config is what a Dialect is made of.
type Config struct {
	Engine Engine
	Keys   Keys
	Domain string // of the server; its clients use api.<Domain> and <port>-<id>.<Domain>

	// Enter lets in whoever shows the 40 hex digits of a key: the context names the
	// caller, until leave is called. An unknown key is Unauthorized.
	Enter func(ctx context.Context, digits string) (_ context.Context, leave func(), err error)

	// Secret derives the access tokens of sandboxes: 32 random bytes or more, kept
	// from start to start. Another secret ends every token.
	Secret []byte

	Logger *slog.Logger // nil means none
}

// Engine is what the dialect needs of the engine.
type Engine interface {
	Create(ctx context.Context, req sandbox.CreateRequest) (sandbox.Sandbox, error)
	Get(ctx context.Context, id string) (sandbox.Sandbox, error)
	List(ctx context.Context, q sandbox.ListQuery) (sandbox.Page, error)
	Update(ctx context.Context, id string, u sandbox.Update) (sandbox.Sandbox, error)
	Remove(ctx context.Context, id string) error
	Pause(ctx context.Context, id string) (sandbox.Sandbox, error)
	Stop(ctx context.Context, id string) (sandbox.Sandbox, error)
	Resume(ctx context.Context, id string) (sandbox.Sandbox, error)
	Start(ctx context.Context, id string) (sandbox.Sandbox, error)
	Awake(ctx context.Context, id string) (sandbox.Sandbox, error)
	Usage(ctx context.Context, id string) (sandbox.Usage, error)
	History(ctx context.Context, id string, q sandbox.HistoryQuery) ([]sandbox.Sample, error)
	Changes(ctx context.Context, q sandbox.ChangeQuery) (sandbox.ChangePage, error)
	Dial(ctx context.Context, id string, port int) (net.Conn, error)

	Fork(ctx context.Context, id string, req sandbox.ForkRequest) (sandbox.Fork, error)
	Snapshot(ctx context.Context, id string, req sandbox.SnapshotRequest) (sandbox.Snapshot, error)
	Snapshots(ctx context.Context, q sandbox.SnapshotQuery) ([]sandbox.Snapshot, error)
	GetSnapshot(ctx context.Context, id string) (sandbox.Snapshot, error)
	RemoveSnapshot(ctx context.Context, id string) error
	SetPolicy(ctx context.Context, id string, p sandbox.Policy) (warnings []string, err error)
	SetSecret(ctx context.Context, name string, value sandbox.SecretValue) (sandbox.Secret, error)
	Secrets(ctx context.Context) ([]sandbox.Secret, error)
	Secret(ctx context.Context, name string) (sandbox.Secret, error)
	RemoveSecret(ctx context.Context, name string) error
	Templates(ctx context.Context) ([]sandbox.Template, error)
	Template(ctx context.Context, name string) (sandbox.Template, error)
	RemoveTemplate(ctx context.Context, name string) error
	CopyTemplate(ctx context.Context, from, to string) error
	StartBuild(ctx context.Context, id string, req sandbox.BuildRequest) (sandbox.Build, error)
	GetBuild(ctx context.Context, id string, after int) (sandbox.Build, error)
	PutContext(ctx context.Context, name string, body io.Reader) (digest string, size int64, err error)
	HasContext(ctx context.Context, name string) (bool, error)

	Exec(ctx context.Context, id string, cmd sandbox.Command) (sandbox.Events, error)
	Attach(ctx context.Context, id, process string, from sandbox.Offsets) (sandbox.Events, error)
	Input(ctx context.Context, id, process string, r io.Reader) error
	CloseInput(ctx context.Context, id, process string) error
	Signal(ctx context.Context, id, process, signal string) error
	Processes(ctx context.Context, id string) ([]sandbox.Process, error)

	OpenTerminal(ctx context.Context, id string, req sandbox.TerminalRequest) (t sandbox.Terminal, made bool, err error)
	AttachTerminal(ctx context.Context, id, terminal string, at sandbox.TerminalAttach) (sandbox.TerminalEvents, error)
	TerminalInput(ctx context.Context, id, terminal string, r io.Reader) error
	ResizeTerminal(ctx context.Context, id, terminal string, cols, rows int) error
	SignalTerminal(ctx context.Context, id, terminal, signal string) error
	CloseTerminal(ctx context.Context, id, terminal string) error
	Terminals(ctx context.Context, id string) ([]sandbox.Terminal, error)

	Stat(ctx context.Context, id, path string, follow bool) (sandbox.FileInfo, error)
	ListDir(ctx context.Context, id, path string, depth, limit int, after string) ([]sandbox.FileInfo, bool, error)
	MakeDir(ctx context.Context, id, path string, mode uint32, user string, parents bool) (sandbox.FileInfo, error)
	Move(ctx context.Context, id, from, to string, replace bool) error
	RemoveFile(ctx context.Context, id, path string, recursive bool) error
	ReadFile(ctx context.Context, id, path string, r sandbox.ReadRange) (io.ReadCloser, sandbox.FileInfo, error)
	WriteFile(ctx context.Context, id, path string, o sandbox.WriteOptions, body io.Reader) (sandbox.FileInfo, error)
	FileAttributes(ctx context.Context, id, path string) (sandbox.Attributes, error)
	SetFileAttributes(ctx context.Context, id, path string, c sandbox.AttributeChange) (sandbox.Attributes, error)
	Watch(ctx context.Context, id string, r sandbox.WatchRequest) (sandbox.Watch, error)

	CreateVolume(ctx context.Context, req sandbox.VolumeRequest) (sandbox.Volume, error)
	Volumes(ctx context.Context) ([]sandbox.Volume, error)
	Volume(ctx context.Context, volume string) (sandbox.Volume, error)
	RemoveVolume(ctx context.Context, volume string) error
	StatVolume(ctx context.Context, volume, path string) (sandbox.VolumeEntry, error)
	ListVolume(ctx context.Context, volume, path string, depth int) ([]sandbox.VolumeEntry, error)
	MakeVolumeDir(ctx context.Context, volume, path string, a sandbox.VolumeAttributes, parents bool) (sandbox.VolumeEntry, error)
	SetVolumeAttributes(ctx context.Context, volume, path string, a sandbox.VolumeAttributes) (sandbox.VolumeEntry, error)
	ReadVolume(ctx context.Context, volume, path string) (io.ReadCloser, sandbox.VolumeEntry, error)
	WriteVolume(ctx context.Context, volume, path string, a sandbox.VolumeAttributes, replace bool, body io.Reader) (sandbox.VolumeEntry, error)
	RemoveFromVolume(ctx context.Context, volume, path string) error

	CreateCodeContext(ctx context.Context, id string, o sandbox.CodeOptions) (sandbox.CodeContext, error)
	CodeContexts(ctx context.Context, id string) ([]sandbox.CodeContext, error)
	RestartCodeContext(ctx context.Context, id, name string) (sandbox.CodeContext, error)
	RemoveCodeContext(ctx context.Context, id, name string) error
	RunCode(ctx context.Context, id string, r sandbox.CodeRun) (sandbox.CodeEvents, error)
	CodeLanguages(ctx context.Context, id string) ([]string, error)
}

// Prefix is the path under which the control API is served on every host.
const Prefix = "/e2b"

// Dialect is the handler of all that E2B's clients send.
type Dialect struct {
	engine   Engine
	keys     Keys
	aws      *awsLogin
	domain   string
	enter    func(ctx context.Context, digits string) (_ context.Context, leave func(), err error)
	secret   []byte
	log      *slog.Logger
	control  http.Handler
	guest    http.Handler // the services of the guest port
	code     http.Handler // those of the kernel port
	watchers watchers
	known    known
	planned  planned
	turns    keylock.Locks // of creates, by their keys
}

// New returns a Dialect.
func New(c Config) *Dialect {
	d := &Dialect{engine: c.Engine, keys: c.Keys, aws: newAWSLogin(), domain: strings.ToLower(c.Domain), enter: c.Enter, secret: c.Secret, log: c.Logger}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	d.control = d.controlHandler()
	d.guest = d.guestHandler()
	d.code = d.codeHandler()
	return d
}

// Claims reports whether a request is for this dialect: by its path, by a host
// name that its clients use, or by the headers that name a sandbox's port.
func (d *Dialect) Claims(r *http.Request) bool {
	if under(r.URL.Path, Prefix) || hasTarget(r) {
		return true
	}
	host := hostOf(r)
	if host == "api."+d.domain {
		return true
	}
	return d.unnamedFile(r) || d.ownHost(r, host)
}

// ownHost reports whether a host's name means a port that is served here: one of
// the guest's, or any of a sandbox that was made here, where ports are open to all
// unless its maker said otherwise.
func (d *Dialect) ownHost(r *http.Request, host string) bool {
	port, id, ok := splitHost(host)
	switch {
	case !ok || !strings.HasSuffix(host, "."+d.domain):
		return false
	case port == guestPort || port == kernelPort:
		return true
	}
	s, err := d.engine.Get(sandbox.WithCaller(r.Context(), sandbox.Operator()), id)
	if err == nil && s.Metadata[metaMade] == "true" {
		d.known.add(s.ID)
		return true
	}
	return sandbox.KindOf(err) == sandbox.NotFound && d.known.has(sandbox.ID(id))
}

// ServeHTTP serves what Claims has claimed.
func (d *Dialect) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch host := hostOf(r); {
	case hasTarget(r) && sharedHost(host, d.domain):
		d.serveHeaders(w, r)
	case under(r.URL.Path, Prefix):
		http.StripPrefix(Prefix, d.control).ServeHTTP(w, r)
	case host == "api."+d.domain:
		d.control.ServeHTTP(w, r)
	case d.unnamedFile(r):
		d.serveUnnamed(w, r)
	default:
		d.serveHost(w, r, host)
	}
}

func under(path, prefix string) bool { return path == prefix || strings.HasPrefix(path, prefix+"/") }

// hostOf is the host that a request names, without its port, in lower case.
func hostOf(r *http.Request) string {
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.ToLower(host)
}
