package certs_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/edge/certs"
	"github.com/berth-dev/berth/edge/certs/acmetest"
)

func listen(t *testing.T, address string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// TestACME: a domain that was proved gets a certificate at its first visit, and no
// other name does; what was got is kept, and why one was not is told.
func TestACME(t *testing.T) {
	authority := acmetest.Start(t)
	// Whoever gets certificates in this process waits for others that get one of the same name.
	round := strconv.FormatInt(time.Now().UnixNano(), 36)
	app, late := "app-"+round+".example.com", "late-"+round+".example.com"
	plain, secure := listen(t, authority.At(acmetest.HTTPPort)), listen(t, authority.At(acmetest.HTTPSPort))
	dir := t.TempDir()
	var log logged
	a, err := certs.NewACME(certs.ACMEConfig{Dir: filepath.Join(dir, "acme"), Directory: authority.Directory, Roots: authority.RootsFile,
		HTTP: plain.Addr(), HTTPS: secure.Addr(), Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Allowed: func(_ context.Context, name string) error {
			if name == "other.example.com" {
				return errors.New("not proved")
			}
			return nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	own, _ := open(t, dir, domain, time.Now())
	hello := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "hello at ", r.Host) })
	go http.Serve(plain, a.Challenges(hello))
	go http.Serve(tls.NewListener(secure, certs.TLS(certs.Config{Domain: domain, Own: own, Public: a})), hello)

	roots := authority.Root(t)
	visit := func(ctx context.Context, name string) (string, error) {
		c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots},
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "tcp", secure.Addr().String())
			}}}
		q, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+name+"/", nil)
		if err != nil {
			return "", err
		}
		resp, err := c.Do(q)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		return string(b), err
	}
	for range 2 {
		if b, err := visit(t.Context(), app); err != nil || b != "hello at "+app {
			t.Fatalf("%q %v\n%s", b, err, log.String())
		}
	}
	if _, err := visit(t.Context(), "other.example.com"); err == nil {
		t.Error("a domain that nobody proved gets a certificate")
	}
	kept, err := filepath.Glob(filepath.Join(dir, "acme", "certificates", "*", "*", "*.key"))
	if err != nil || len(kept) != 1 {
		t.Fatalf("kept are %v, %v", kept, err)
	}
	if info, err := os.Stat(kept[0]); err != nil || info.Mode().Perm()&0o077 != 0 {
		t.Errorf("its key is readable by others: %v %v", info, err)
	}

	authority.Stop()
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() { // it waits for as long as the server tries
		visit(ctx, late)
		close(gone)
	}()
	defer func() { cancel(); <-gone }()
	failed := certs.Standing{}
	for end := time.Now().Add(2 * time.Minute); failed.Reason == ""; time.Sleep(20 * time.Millisecond) {
		all, err := certs.Standings(filepath.Join(dir, "acme"))
		if err != nil || time.Now().After(end) {
			t.Fatalf("%+v, %v\n%s", all, err, log.String())
		}
		for _, s := range all {
			switch s.Name {
			case late:
				failed = s
			case app:
				if left := time.Until(s.Expires); left <= 0 || left > acmetest.Lifetime {
					t.Fatalf("%+v", s)
				}
			default:
				t.Fatalf("nobody asked for %+v", s)
			}
		}
	}
	if !failed.Expires.IsZero() || time.Since(failed.Failed) > 10*time.Minute || !strings.Contains(failed.Reason, "refused") {
		t.Errorf("%+v", failed)
	}
}
