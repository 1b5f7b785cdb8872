package test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/edge/certs/acmetest"
	"github.com/berth-dev/berth/sandbox"
)

const ownDomain = "app.example.com"

// TestACME: a server gets a certificate for a domain that was proved, renews it, serves
// it after a restart without its authority, and tells that it cannot renew it there.
func TestACME(t *testing.T) {
	authority := acmetest.Start(t)
	flags := []string{"--listen", authority.At(acmetest.HTTPPort), "--https-listen", authority.At(acmetest.HTTPSPort), "--resolver", authority.Resolver,
		"--acme", "--acme-directory", authority.Directory, "--acme-roots", authority.RootsFile}
	r := startReal(t, flags...)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	box, err := r.Create(ctx, sandbox.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	port := startSite(t, r, string(box.ID), "site", site)
	public := true
	if _, err := r.Share(ctx, string(box.ID), port, sandbox.ShareRequest{Public: &public}); err != nil {
		t.Fatal(err)
	}
	v := &visitor{t: t, http: &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: authority.Root(t)},
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", authority.At(acmetest.HTTPSPort))
		}}}}

	d, err := r.AddDomain(ctx, sandbox.DomainRequest{Name: ownDomain, Sandbox: string(box.ID), Port: port})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.VerifyDomain(ctx, ownDomain); sandbox.KindOf(err) != sandbox.Forbidden {
		t.Fatalf("a domain without a proof is verified: %v", err)
	}
	if _, err := v.visit(ctx); err == nil {
		t.Fatal("a domain without a proof has a certificate")
	}
	authority.SetTXT(d.Proof.TXTName, d.Proof.TXTValue)
	if _, err := r.VerifyDomain(ctx, ownDomain); err != nil {
		t.Fatal(err)
	}
	first := v.must(ctx)
	for v.must(ctx) == first { // so short-lived a certificate is renewed behind each visit
		time.Sleep(100 * time.Millisecond)
	}
	if got := troubles(ctx, t, r); len(got) > 0 {
		t.Errorf("the doctor tells of %q", got)
	}

	if err := r.stop(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	authority.Stop()
	r.again(t, flags...)
	for v.must(ctx); !strings.Contains(tail(r.log), `msg="no certificate"`); v.must(ctx) {
		time.Sleep(100 * time.Millisecond)
	}
	told := troubles(ctx, t, r)
	if len(told) != 1 || !strings.Contains(told[0], ownDomain+": it is not renewed") || !strings.Contains(told[0], "connection refused") {
		t.Errorf("the doctor tells of %q", told)
	}
}

// TestACMEWithoutTLS: what would be got in vain is refused.
func TestACMEWithoutTLS(t *testing.T) {
	out, err := exec.Command(binary(t), "serve", "--driver", "fake", "--data", t.TempDir(), "--listen", "127.0.0.1:0", "--acme").CombinedOutput()
	var failed *exec.ExitError
	if !errors.As(err, &failed) || !strings.Contains(string(out), "--https-listen") {
		t.Errorf("%v: %s", err, out)
	}
}

// visitor comes to the domain like anybody.
type visitor struct {
	t    *testing.T
	http *http.Client
}

// visit returns the serial number of the certificate that it was shown.
func (v *visitor) visit(ctx context.Context) (serial string, err error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+ownDomain+"/", nil)
	if err != nil {
		return "", err
	}
	resp, err := v.http.Do(q)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && string(b) != "hello from "+ownDomain {
		err = errors.New(resp.Status + ": " + string(b))
	}
	return resp.TLS.PeerCertificates[0].SerialNumber.String(), err
}

func (v *visitor) must(ctx context.Context) (serial string) {
	v.t.Helper()
	serial, err := v.visit(ctx)
	if err != nil {
		v.t.Fatal(err)
	}
	return serial
}

// troubles is what the doctor finds wrong with certificates.
func troubles(ctx context.Context, t *testing.T, r *real) (all []string) {
	t.Helper()
	cmd := exec.CommandContext(ctx, r.suite.berth, "--json", "doctor", "--data", r.data)
	out, err := cmd.Output() // that it finds something else to be wrong is another matter
	var report struct {
		Checks []struct{ Check, Verdict, Found, Remedy string }
	}
	if jerr := json.Unmarshal(out, &report); jerr != nil {
		t.Fatalf("doctor: %v, %v: %s", err, jerr, out)
	}
	seen := false
	for _, c := range report.Checks {
		if c.Check != "certificates" {
			continue
		}
		seen = true
		if c.Verdict != "ok" {
			all = append(all, c.Found)
			if c.Remedy == "" {
				t.Errorf("no remedy for %q", c.Found)
			}
		}
	}
	if !seen {
		t.Errorf("the doctor does not look at certificates: %s", out)
	}
	return all
}
