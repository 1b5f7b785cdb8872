// Package credentials tries from within a real sandbox what a credential that it
// never holds is worth.
package credentials

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/test/rig"
)

// What stands for the outside: addresses that this machine has for as long as a
// test runs, and which the operator opens to the sandboxes.
const (
	network    = "198.18.77.2/31"
	nameServer = "127.77.0.1:5377"
	site       = "198.18.77.2:443"
	trap       = "198.18.77.3:443" // of somebody else, who would like to see the token
	zone       = "upstream.example"
	token      = "tok-4f1d0c77e2b34aa9"
)

// outside is a name server and a site for all names beneath zone.
type outside struct {
	flags []string // of a server that reaches it

	mu      sync.Mutex
	trapped []byte // what came to the trap
}

func newOutside(t *testing.T) *outside {
	t.Helper()
	o := &outside{}
	for _, a := range []string{site, trap} {
		host, _, _ := net.SplitHostPort(a)
		rig.Address(t, host)
	}
	certificate, roots := rig.Certificate(t, "*."+zone)
	l, err := tls.Listen("tcp", site, &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2", "http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	web := &http.Server{Handler: o.handler(t)}
	go web.Serve(l)
	o.trap(t)
	host, _, _ := net.SplitHostPort(site)
	rig.Names(t, nameServer, rig.Zone(zone, host))
	t.Cleanup(func() { web.Close() })
	o.flags = []string{"--resolver", nameServer, "--egress-allow", network, "--egress-ca", roots}
	return o
}

// handler serves a page that says who asks, a git repository, a Python index and
// a package of npm's, the latter three for the token's owner alone.
func (o *outside) handler(t *testing.T) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/whoami", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s", r.Host, map[bool]string{true: "known", false: "stranger"}[o.known(r)])
	})
	mux.HandleFunc("/repeat", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "you sent %q", r.Header.Get("Authorization"))
	})
	mux.HandleFunc("/events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: one\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	mux.HandleFunc("/upload", func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n, " ", err)
	})
	mux.HandleFunc("/leave", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://other."+zone+"/whoami", http.StatusFound)
	})
	mux.Handle("/git/", o.private(http.StripPrefix("/git", gitServer(t))))
	mux.Handle("/simple/", o.private(pythonIndex(t)))
	mux.Handle("/npm/", o.private(npmRegistry(t)))
	return mux
}

// trap takes every connection and remembers what comes over it, with TLS by a
// certificate of its own or without.
func (o *outside) trap(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", trap)
	if err != nil {
		t.Fatal(err)
	}
	nobodys, _ := rig.Certificate(t, "*."+zone)
	config := &tls.Config{Certificates: []tls.Certificate{nobodys}}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer c.Close()
				c.SetDeadline(time.Now().Add(5 * time.Second))
				both := tls.Server(&overheard{Conn: c, o: o}, config)
				b := make([]byte, 1024)
				for {
					n, err := both.Read(b)
					o.hear(b[:n])
					if err != nil {
						return
					}
				}
			})
		}
	})
	t.Cleanup(func() { l.Close(); serving.Wait() })
}

func (o *outside) hear(b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.trapped = append(o.trapped, b...)
}

// overheard is a connection of which every byte is remembered.
type overheard struct {
	net.Conn
	o *outside
}

func (c *overheard) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.o.hear(b[:n])
	return n, err
}

// known reports whether a request bears the token, in either form.
func (o *outside) known(r *http.Request) bool {
	_, password, _ := r.BasicAuth()
	return r.Header.Get("Authorization") == "Bearer "+token || password == token
}

func (o *outside) private(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !o.known(r) {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// gitServer serves one repository over the smart protocol.
func gitServer(t *testing.T) http.Handler {
	t.Helper()
	dir := t.TempDir()
	where, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", args...)
		cmd.Env = append(os.Environ(), "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	work := filepath.Join(dir, "work")
	run("init", "-q", work)
	if err := os.WriteFile(filepath.Join(work, "README"), []byte(strings.Repeat("private text\n", 10_000)), 0o644); err != nil {
		t.Fatal(err)
	}
	run("-C", work, "add", ".")
	run("-C", work, "commit", "-qm", "first")
	run("clone", "-q", "--bare", work, filepath.Join(dir, "repo.git"))
	run("-C", filepath.Join(dir, "repo.git"), "config", "http.receivepack", "true")
	return &cgi.Handler{Path: filepath.Join(strings.TrimSpace(string(where)), "git-http-backend"),
		Env: []string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1"}}
}
