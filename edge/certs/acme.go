package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"

	"github.com/berth-dev/berth/sandbox"
)

// ACMEConfig says how certificates of public names are got.
type ACMEConfig struct {
	Dir       string // keeps them, with the account's key; this part's alone
	Directory string // of the authority; "" means Let's Encrypt
	Email     string // for its warnings, optional
	Roots     string // file of the roots that the authority itself is trusted by, in PEM; "" means the system's

	// HTTP and HTTPS are the server's own listeners, to which the authority's
	// ports 80 and 443 lead.
	HTTP, HTTPS net.Addr

	// Allowed reports an error unless a certificate of the name may be asked for.
	Allowed func(ctx context.Context, name string) error
	Logger  *slog.Logger
}

// ACME gets certificates at the first handshake that needs them, and renews them.
type ACME struct {
	cache  *certmagic.Cache
	magic  *certmagic.Config
	issuer *certmagic.ACMEIssuer
}

// NewACME asks nobody for anything yet.
func NewACME(c ACMEConfig) (*ACME, error) {
	a := &ACME{}
	quiet := zap.NewNop() // what matters is told by events
	a.cache = certmagic.NewCache(certmagic.CacheOptions{Logger: quiet,
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return a.magic, nil }})
	a.magic = certmagic.New(a.cache, certmagic.Config{
		Storage: &certmagic.FileStorage{Path: c.Dir}, Logger: quiet,
		OnDemand: &certmagic.OnDemandConfig{DecisionFunc: c.Allowed},
		OnEvent: func(ctx context.Context, event string, data map[string]any) error {
			tell(ctx, c, event, data)
			return nil
		},
	})
	if err := pruneFailures(c.Dir, time.Now()); err != nil {
		return nil, &sandbox.Error{Op: "open certificates", Kind: sandbox.Internal, Err: err}
	}
	roots, err := readRoots(c.Roots)
	if err != nil {
		return nil, err
	}
	template := certmagic.ACMEIssuer{CA: c.Directory, Email: c.Email, Agreed: true, TrustedRoots: roots, Logger: quiet}
	if c.Directory == "" {
		template.CA = certmagic.LetsEncryptProductionCA
	}
	// Where the listeners are the server's own, none are opened for the challenges.
	if template.ListenHost, template.AltTLSALPNPort, err = hostPort(c.HTTPS); err != nil {
		return nil, err
	}
	if _, template.AltHTTPPort, err = hostPort(c.HTTP); err != nil {
		return nil, err
	}
	a.issuer = certmagic.NewACMEIssuer(a.magic, template)
	a.magic.Issuers = []certmagic.Issuer{a.issuer}
	return a, nil
}

func readRoots(path string) (*x509.CertPool, error) {
	if path == "" {
		return nil, nil
	}
	b, err := os.ReadFile(path)
	pool := x509.NewCertPool()
	if err == nil && !pool.AppendCertsFromPEM(b) {
		err = errors.New("it holds no certificate")
	}
	if err != nil {
		return nil, &sandbox.Error{Op: "read roots " + path, Kind: sandbox.Invalid, Err: err, Hint: "give --acme-roots a file of certificates in PEM"}
	}
	return pool, nil
}

func hostPort(a net.Addr) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(a.String())
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	return host, port, err
}

// tell logs what became of a certificate, and keeps it for Standings.
func tell(ctx context.Context, c ACMEConfig, event string, data map[string]any) {
	name, _ := data["identifier"].(string)
	switch event {
	case "cert_obtained":
		c.Logger.InfoContext(ctx, "certificate obtained", "name", name, "renewal", data["renewal"])
		if err := forgetFailure(c.Dir, name); err != nil {
			c.Logger.WarnContext(ctx, "an earlier failure is still on the disk", "name", name, "error", err)
		}
	case "cert_failed":
		c.Logger.WarnContext(ctx, "no certificate", "name", name, "renewal", data["renewal"], "error", data["error"])
		what := failure{Time: time.Now().UTC(), Error: fmt.Sprintf("%.1000v", data["error"])}
		if err := noteFailure(c.Dir, name, what); err != nil {
			c.Logger.WarnContext(ctx, "that failure is in this log alone", "name", name, "error", err)
		}
	}
}

// certificate is that of a name, got if need be: the handshake waits.
func (a *ACME) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	return a.magic.GetCertificate(hello)
}

func (a *ACME) protocols() []string { return []string{"acme-tls/1"} }

// Challenges answers the authority's questions over HTTP, and hands on all else.
func (a *ACME) Challenges(next http.Handler) http.Handler {
	return a.issuer.HTTPChallengeHandler(next)
}

// Close ends the renewing.
func (a *ACME) Close() error {
	a.cache.Stop()
	return nil
}
