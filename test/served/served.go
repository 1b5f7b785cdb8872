// Package served starts a whole server for tests: the fake driver, a store in a
// scratch folder, templates in memory, the engine and the native API.
package served

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-dev/berth/account"
	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/audit"
	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/driver/fake"
	"github.com/berth-dev/berth/engine"
	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/record/bolt"
	"github.com/berth-dev/berth/sandbox"
)

// Key is the admin's key of every server.
const Key = "berth_0123456789abcdef0123456789abcdef01234567"

// Server is a server that ends with its test.
type Server struct {
	URL      string
	API      *api.API
	Engine   *engine.Engine
	Accounts *account.Book
	Records  record.Store
	Gateway  *Gateway
	Audit    *audit.Log
	Log      *Log
	HTTP     *httptest.Server

	passed atomic.Int64 // nanoseconds
}

// PassTime lets time pass for the accounts.
func (s *Server) PassTime(d time.Duration) { s.passed.Add(int64(d)) }

func (s *Server) now() time.Time { return time.Now().Add(time.Duration(s.passed.Load())) }

// Start starts a server.
func Start(t testing.TB) *Server {
	t.Helper()
	drv, err := fake.New(fake.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	records, err := bolt.Open(t.TempDir() + "/records.db")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Log: &Log{}, Records: records, Gateway: &Gateway{}}
	if s.Audit, err = audit.Open(audit.Config{Dir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	log := s.Log.Logger()
	s.Accounts = account.New(account.Config{Records: records, Logger: log, Clock: s.now, Terms: account.Terms{
		Temporary: &account.Temporary{Hourly: 1000, Quota: sandbox.Quota{Sandboxes: 1}}}})
	keeping, err := newCredentials(t, records)
	if err != nil {
		t.Fatal(err)
	}
	s.Engine, err = engine.New(engine.Config{Gateway: s.Gateway, Audit: s.Audit, Credentials: keeping.proxy, Vault: keeping.vault, Quotas: s.Accounts, Drivers: []driver.Driver{drv}, Records: records, Templates: NewTemplates(), Archive: newArchive(t), Logger: log, Version: "test", SignSecret: []byte(Key), Domain: "berth.test", Proofs: proofs{}})
	if err != nil {
		t.Fatal(err)
	}
	s.Engine.SetWebhookRanges([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")})
	if err := s.Engine.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Accounts.Open(t.Context(), s.Engine); err != nil {
		t.Fatal(err)
	}
	s.API = api.New(api.Config{Engine: s.Engine, Previews: preview, Accounts: s.Accounts, Used: s.Engine.Used, AdminKey: Key, Hosts: []string{"berth.test"}, Logger: log, SignSecret: []byte(Key)})
	s.HTTP = httptest.NewServer(s.API)
	s.URL = s.HTTP.URL
	t.Cleanup(func() {
		s.API.Close()
		s.HTTP.Close()
		for _, end := range []func() error{s.Accounts.Close, s.Engine.Close, drv.Close, records.Close, s.Audit.Close} {
			if err := end(); err != nil {
				t.Error(err)
			}
		}
	})
	return s
}

// Request makes a request to the server with the admin's key.
func (s *Server) Request(t testing.TB, method, path string, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+Key)
	return r
}

// Log is a log that can be read while it is written.
type Log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

// Logger writes everything to the log.
func (l *Log) Logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// Templates is a store of templates in memory. It holds "base" at first; what is
// built from "oci:broken" fails half way, from "oci:endless" never ends by itself.
type Templates struct {
	mu  sync.Mutex
	all map[string]sandbox.Template
}

// NewTemplates returns a store that holds "base".
func NewTemplates() *Templates {
	t := &Templates{all: map[string]sandbox.Template{}}
	t.put(sandbox.BuildRequest{Name: sandbox.DefaultTemplate, From: "distribution:bookworm"})
	return t
}

func (t *Templates) put(r sandbox.BuildRequest) sandbox.Template {
	t.mu.Lock()
	defer t.mu.Unlock()
	digest := "sha256:" + strings.Repeat("0123456789abcdef", 4)
	t.all[r.Name] = sandbox.Template{Name: r.Name, Digest: digest, Source: r.From, Size: 1, User: "root", Workdir: "/",
		Env: map[string]string{"FROM_TEMPLATE": "yes", "SHARED": "template"}, Created: time.Now().UTC()}
	return t.all[r.Name]
}

// Build makes a template of nothing, in two steps.
func (t *Templates) Build(ctx context.Context, r sandbox.BuildRequest, progress func(sandbox.Progress)) (sandbox.Template, error) {
	progress(sandbox.Progress{Step: "download", Done: 1, Total: 2, Unit: "layers"})
	switch r.From {
	case "oci:broken":
		return sandbox.Template{}, sandbox.Errorf("unpack", sandbox.Invalid, "it is not an image")
	case "oci:endless":
		<-ctx.Done()
		return sandbox.Template{}, ctx.Err()
	}
	progress(sandbox.Progress{Step: "pack", Log: "packed"})
	return t.put(r), nil
}

// Get returns one template.
func (t *Templates) Get(_ context.Context, name string) (sandbox.Template, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if got, ok := t.all[name]; ok {
		return got, nil
	}
	for _, got := range t.all {
		if got.Digest == name {
			return got, nil
		}
	}
	return sandbox.Template{}, sandbox.Errorf("get template", sandbox.NotFound, "no template %q", name)
}

// List returns them by name.
func (t *Templates) List(context.Context) ([]sandbox.Template, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []sandbox.Template
	for _, name := range slices.Sorted(maps.Keys(t.all)) {
		all = append(all, t.all[name])
	}
	return all, nil
}

// Remove forgets one.
func (t *Templates) Remove(_ context.Context, name string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.all, name)
	return nil
}

// RootPath is a path at which nothing lies: the fake driver applies no root.
func (t *Templates) RootPath(tpl sandbox.Template) string { return "/nowhere/" + tpl.Digest }

// Import is Unsupported.
func (t *Templates) Import(context.Context, string, *sandbox.Login, bool, func(sandbox.Progress)) (sandbox.Template, error) {
	return sandbox.Template{}, errNoBuilds
}

// Pack is Unsupported.
func (t *Templates) Pack(context.Context, sandbox.Template, string, io.Reader, func(sandbox.Progress)) (sandbox.Template, error) {
	return sandbox.Template{}, errNoBuilds
}

// Made finds nothing.
func (t *Templates) Made(context.Context, string) (sandbox.Template, bool, error) {
	return sandbox.Template{}, false, nil
}

// Assign is Unsupported.
func (t *Templates) Assign(context.Context, sandbox.Template) error { return errNoBuilds }

var errNoBuilds = sandbox.Errorf("build", sandbox.Unsupported, "nothing is built in steps here")

// Prune removes nothing.
func (t *Templates) Prune(context.Context, func(string) bool) ([]string, error) { return nil, nil }

// preview is the address of a port; nothing answers there.
func preview(id sandbox.ID, port int) string {
	return fmt.Sprintf("http://%d-%s.berth.test/", port, id)
}

// proofs finds proof for the names beneath proved.test.
type proofs struct{}

func (proofs) Prove(_ context.Context, d sandbox.Domain) error {
	if strings.HasSuffix(d.Name, ".proved.test") {
		return nil
	}
	return sandbox.Errorf("look for proof", sandbox.Forbidden, "there is none")
}
