package s3_test

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/blob"
	"github.com/berth-dev/berth/blob/blobtest"
	"github.com/berth-dev/berth/blob/s3"
	"github.com/berth-dev/berth/blob/s3/s3test"
	"github.com/berth-dev/berth/sandbox"
)

func TestContract(t *testing.T) {
	server := s3test.Start(t, "")
	blobtest.Run(t, func(t *testing.T, dir string) blob.Store {
		return server.Open(t, fmt.Sprintf("%x", sha256.Sum256([]byte(dir))))
	})
}

// random is what no server compresses or knows.
func random(t *testing.T, n int) ([]byte, blob.Digest) {
	t.Helper()
	b := make([]byte, n)
	rand.Read(b)
	return b, blob.DigestOf(sha256.Sum256(b))
}

func put(t *testing.T, s blob.Store, b []byte) blob.Digest {
	t.Helper()
	info, err := s.Put(t.Context(), bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return info.Digest
}

func wantKind(t *testing.T, what string, err error, want sandbox.Kind) {
	t.Helper()
	if got := sandbox.KindOf(err); got != want {
		t.Errorf("%s: kind %q, want %q (error: %v)", what, got, want, err)
	}
	if err != nil && want != sandbox.NotFound && sandbox.HintOf(err) == "" {
		t.Errorf("%s: no hint: %v", what, err)
	}
}

func read(t *testing.T, s blob.Store, d blob.Digest) ([]byte, error) {
	t.Helper()
	r, err := s.Open(t.Context(), d, 0)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

// TestLong sends what is longer than a part up in parts, and leaves no part of
// what fails half-way.
func TestLong(t *testing.T) {
	server := s3test.Start(t, "")
	config := server.Config("")
	config.PartSize, config.Spool = 5<<20, t.TempDir()
	s, err := s3.Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{5 << 20, 5<<20 + 1, 17<<20 + 3} {
		b, _ := random(t, n)
		if got, err := read(t, s, put(t, s, b)); err != nil || !bytes.Equal(got, b) {
			t.Errorf("%d bytes come back as %d: %v", n, len(got), err)
		}
	}
	var parts, aborts atomic.Int32
	server.Trouble(func(w http.ResponseWriter, r *http.Request, real http.Handler) {
		if r.URL.Query().Get("partNumber") == "2" {
			parts.Add(1)
			io.Copy(io.Discard, r.Body) // else the connection breaks before the answer is read
			refuse(w, http.StatusForbidden, "AccessDenied")
			return
		}
		if r.Method == http.MethodDelete {
			aborts.Add(1)
		}
		real.ServeHTTP(w, r)
	})
	b, d := random(t, 12<<20)
	_, err = s.Put(t.Context(), bytes.NewReader(b))
	wantKind(t, "put of which a part is refused", err, sandbox.Forbidden)
	_, err = s.Stat(t.Context(), d)
	wantKind(t, "stat of it", err, sandbox.NotFound)
	if parts.Load() != 1 || aborts.Load() != 1 {
		t.Errorf("the part was tried %d times and the upload called off %d times, want once each", parts.Load(), aborts.Load())
	}
	if left, err := os.ReadDir(config.Spool); err != nil || len(left) > 0 {
		t.Errorf("left where uploads wait: %v, %v", left, err)
	}
}

// refuse answers as the protocol does.
func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>so it is</Message></Error>`, code)
}

// TestBusyServer answers each request a few times with what passes.
func TestBusyServer(t *testing.T) {
	server := s3test.Start(t, "")
	s := server.Open(t, "")
	var seen atomic.Int32
	server.Trouble(func(w http.ResponseWriter, r *http.Request, real http.Handler) {
		switch seen.Add(1) % 4 {
		case 1:
			refuse(w, http.StatusServiceUnavailable, "SlowDown")
		case 2:
			panic(http.ErrAbortHandler)
		case 3:
			refuse(w, http.StatusInternalServerError, "InternalError")
		default:
			real.ServeHTTP(w, r)
		}
	})
	b, _ := random(t, 1<<20)
	d := put(t, s, b)
	if got, err := read(t, s, d); err != nil || !bytes.Equal(got, b) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	found := 0
	if err := s.List(t.Context(), func(blob.Info) error { found++; return nil }); err != nil || found != 1 {
		t.Errorf("list: %d, %v", found, err)
	}

	seen.Store(0)
	server.Trouble(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		seen.Add(1)
		refuse(w, http.StatusServiceUnavailable, "SlowDown")
	})
	_, err := s.Put(t.Context(), bytes.NewReader(b))
	wantKind(t, "put to a server that stays busy", err, sandbox.Unavailable)
	if n := seen.Load(); n != 4 {
		t.Errorf("it was tried %d times, want 4", n)
	}
}

// TestBodyBreaksOff cuts every answer after some bytes.
func TestBodyBreaksOff(t *testing.T) {
	server := s3test.Start(t, "")
	s := server.Open(t, "")
	b, _ := random(t, 1<<20)
	d := put(t, s, b)
	cut := func(after int) func(http.ResponseWriter, *http.Request, http.Handler) {
		return func(w http.ResponseWriter, r *http.Request, real http.Handler) {
			if r.Method == http.MethodGet {
				w = &cutter{ResponseWriter: w, left: after}
			}
			real.ServeHTTP(w, r)
		}
	}
	server.Trouble(cut(400_000))
	if got, err := read(t, s, d); err != nil || !bytes.Equal(got, b) {
		t.Errorf("cut twice: %d bytes, %v", len(got), err)
	}
	server.Trouble(cut(100_000))
	_, err := read(t, s, d)
	wantKind(t, "cut at every turn", err, sandbox.Unavailable)
}

// cutter ends an answer in its body.
type cutter struct {
	http.ResponseWriter
	left int
}

func (c *cutter) Write(p []byte) (int, error) {
	if len(p) > c.left {
		c.ResponseWriter.Write(p[:c.left])
		c.ResponseWriter.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	c.left -= len(p)
	return c.ResponseWriter.Write(p)
}

// TestStalledServer never answers, and then stops in the middle of a body.
func TestStalledServer(t *testing.T) {
	server := s3test.Start(t, "")
	config := server.Config("")
	config.Stall, config.Attempts = 300*time.Millisecond, 2
	s, err := s3.Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := random(t, 1<<20)
	d := put(t, s, b)
	server.Trouble(func(_ http.ResponseWriter, r *http.Request, _ http.Handler) {
		io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})
	_, err = s.Stat(t.Context(), d)
	wantKind(t, "stat", err, sandbox.Unavailable)
	server.Trouble(func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		w.Header().Set("Content-Length", fmt.Sprint(len(b)))
		w.Write(b[:1000])
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	_, err = read(t, s, d)
	wantKind(t, "read", err, sandbox.Unavailable)
}

// TestDamage changes an object behind the server's back.
func TestDamage(t *testing.T) {
	server := s3test.Start(t, "")
	s := server.Open(t, "here")
	b, _ := random(t, 100_000)
	d := put(t, s, b)
	path := filepath.Join(server.Folder, "here", "sha256", d.Hex()[:2], d.Hex())
	b[50_000] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	blobtest.Damaged(t, s, d)
	b[50_000] ^= 1
	if put(t, s, b); !whole(t, s, d, b) {
		t.Error("storing the bytes again does not heal the blob")
	}
}

func whole(t *testing.T, s blob.Store, d blob.Digest, want []byte) bool {
	got, err := read(t, s, d)
	return err == nil && bytes.Equal(got, want)
}

// TestFull fills the server's disk.
func TestFull(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: a full server; mounting a small file system needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Fatalf("mount: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	server := s3test.Start(t, dir)
	s := server.Open(t, "")
	b, d := random(t, 8<<20)
	_, err := s.Put(t.Context(), bytes.NewReader(b))
	wantKind(t, "put to a full disk", err, sandbox.Exhausted)
	_, err = s.Stat(t.Context(), d)
	wantKind(t, "stat", err, sandbox.NotFound)
	if put(t, s, b[:1000]); !whole(t, s, blob.DigestOf(sha256.Sum256(b[:1000])), b[:1000]) {
		t.Error("what fits does not come back")
	}
	for status, code := range map[int]string{507: "InsufficientStorage", 403: "QuotaExceeded"} {
		server.Trouble(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { refuse(w, status, code) })
		_, err = s.Put(t.Context(), strings.NewReader("x"))
		wantKind(t, code, err, sandbox.Exhausted)
	}
}

func TestRefused(t *testing.T) {
	server := s3test.Start(t, "")
	for what, change := range map[string]func(*s3.Config){
		"a wrong secret": func(c *s3.Config) {
			c.Credentials = credentials.NewStaticCredentialsProvider(s3test.AccessKey, "wrong", "")
		},
		"an unknown key": func(c *s3.Config) {
			c.Credentials = credentials.NewStaticCredentialsProvider("nobody", "wrong", "")
		},
	} {
		c := server.Config("")
		change(&c)
		_, err := s3.Open(t.Context(), c)
		wantKind(t, what, err, sandbox.Unauthorized)
		if err != nil && strings.Contains(err.Error(), "wrong") {
			t.Errorf("the secret is in the error: %v", err)
		}
	}
	c := server.Config("")
	c.Bucket = "elsewhere"
	_, err := s3.Open(t.Context(), c)
	wantKind(t, "no such bucket", err, sandbox.Unavailable)
	c = server.Config("")
	c.Endpoint = "http://127.0.0.1:1"
	_, err = s3.Open(t.Context(), c)
	wantKind(t, "nobody there", err, sandbox.Unavailable)

	s := server.Open(t, "")
	server.Trouble(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { refuse(w, 403, "AccessDenied") })
	_, err = s.Put(t.Context(), strings.NewReader("x"))
	wantKind(t, "put without the right to", err, sandbox.Forbidden)
}

// TestClaim lets many servers claim one prefix at once.
func TestClaim(t *testing.T) {
	server := s3test.Start(t, "")
	s := server.Open(t, "shared")
	results := make(chan error, 8)
	for i := range cap(results) {
		go func() { results <- s.Claim(t.Context(), fmt.Sprint("server ", i%2)) }()
	}
	won := 0
	for range cap(results) {
		err := <-results
		if err == nil {
			won++
			continue
		}
		wantKind(t, "claim of another's", err, sandbox.Conflict)
	}
	if won != cap(results)/2 {
		t.Errorf("%d claims of one owner won, want all %d of his and no other's", won, cap(results)/2)
	}
	if err := server.Open(t, "own").Claim(t.Context(), "server 1"); err != nil {
		t.Errorf("another prefix: %v", err)
	}
}

func TestParseURL(t *testing.T) {
	c, err := s3.ParseURL("s3://bucket/a/b/?endpoint=https://host:9000&region=eu-1&style=host")
	if err != nil || c.Bucket != "bucket" || c.Prefix != "/a/b/" || c.Endpoint != "https://host:9000" || c.Region != "eu-1" || !c.VirtualHost {
		t.Errorf("%+v, %v", c, err)
	}
	for _, s := range []string{"", "s3://", "s3:///x", "https://bucket", "s3://key:secret@bucket", "s3://b?secret=x", "s3://b?endpoint=host",
		"s3://b?endpoint=http://u:p@host", "s3://b?endpoint=file:///x", "s3://b?region=", "s3://b?style=new", "s3://b#x", "s3://b?%zz", "s3://%zz"} {
		_, err := s3.ParseURL(s)
		wantKind(t, s, err, sandbox.Invalid)
		if err != nil && strings.Contains(err.Error(), "secret@") {
			t.Errorf("a secret is repeated: %v", err)
		}
	}
}

func FuzzParseURL(f *testing.F) {
	f.Add("s3://bucket/a/b/?endpoint=https://host:9000&region=eu-1&style=host")
	f.Fuzz(func(t *testing.T, s string) {
		c, err := s3.ParseURL(s)
		if err == nil && c.Bucket == "" {
			t.Errorf("%q has no bucket", s)
		}
	})
}
