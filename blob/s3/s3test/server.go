// Package s3test runs a real S3 server for tests, with trouble in front of it
// when a test asks for that.
package s3test

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/berth-dev/berth/blob/s3"
)

// The one account of the server.
const (
	AccessKey = "berthtest"
	SecretKey = "berthtestsecret"
	bucket    = "blobs"
)

// Server is one S3 server with one bucket.
type Server struct {
	URL    string // of the trouble's door
	Folder string // where the bucket's objects lie as files

	mu      sync.Mutex
	trouble func(http.ResponseWriter, *http.Request, http.Handler)
}

// binary is the server's program, as make builds it.
func binary(t testing.TB) string {
	t.Helper()
	_, here, _, _ := runtime.Caller(0)
	path := filepath.Join(filepath.Dir(here), "../../../.cache/tools/s3server")
	if set := os.Getenv("BERTH_TEST_S3SERVER"); set != "" {
		path = set
	}
	if _, err := os.Stat(path); err != nil {
		t.Skipf("NOT TESTED: nothing of S3, as there is no server for it (%v); make s3server builds it", err)
	}
	return path
}

// Start runs a server that keeps its objects beneath dir, or in a folder of its
// own if dir is "", and ends with the test.
func Start(t testing.TB, dir string) *Server {
	t.Helper()
	program := binary(t)
	if dir == "" {
		dir = t.TempDir()
	}
	s := &Server{Folder: filepath.Join(dir, bucket)}
	if err := os.MkdirAll(s.Folder, 0o700); err != nil {
		t.Fatal(err)
	}
	// A socket's path must be short.
	home, err := os.MkdirTemp("", "s3")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	socket := filepath.Join(home, "socket")
	var said bytes.Buffer
	cmd := exec.Command(program, "--port", socket, "--quiet", "posix", dir)
	cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+AccessKey, "ROOT_SECRET_KEY="+SecretKey)
	cmd.Stdout, cmd.Stderr, cmd.Dir = &said, &said, home
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		if cmd.Wait(); t.Failed() {
			t.Logf("the S3 server said: %s", said.Bytes())
		}
	})
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	for i := 0; ; i++ {
		c, err := dial(t.Context(), "", "")
		if err == nil {
			c.Close()
			break
		}
		if i == 500 {
			t.Fatalf("the S3 server does not listen: %v: %s", err, said.Bytes())
		}
		time.Sleep(20 * time.Millisecond)
	}
	proxy := &httputil.ReverseProxy{
		// The host's name is signed: it must arrive as it was sent.
		Rewrite:       func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", r.In.Host },
		Transport:     &http.Transport{DialContext: dial, DisableCompression: true},
		FlushInterval: -1,
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	door := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		trouble := s.trouble
		s.mu.Unlock()
		if trouble == nil {
			trouble = func(w http.ResponseWriter, r *http.Request, real http.Handler) { real.ServeHTTP(w, r) }
		}
		trouble(w, r, proxy)
	}))
	door.Config.ErrorLog = nil
	t.Cleanup(door.Close)
	s.URL = door.URL
	return s
}

// Trouble lets f answer from now on; it may hand a request to the real server.
// With nil there is none any more.
func (s *Server) Trouble(f func(w http.ResponseWriter, r *http.Request, real http.Handler)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trouble = f
}

// Config is that of a store beneath a prefix, which does not wait long.
func (s *Server) Config(prefix string) s3.Config {
	return s3.Config{
		Bucket: bucket, Prefix: prefix, Endpoint: s.URL, Region: "us-east-1",
		Credentials: credentials.NewStaticCredentialsProvider(AccessKey, SecretKey, ""),
		Backoff:     20 * time.Millisecond, Attempts: 4,
	}
}

// Open opens such a store.
func (s *Server) Open(t testing.TB, prefix string) *s3.Store {
	t.Helper()
	store, err := s3.Open(t.Context(), s.Config(prefix))
	if err != nil {
		t.Fatal(err)
	}
	return store
}
