package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/net/netutil"

	"github.com/berth-dev/berth/edge"
	"github.com/berth-dev/berth/edge/certs"
	"github.com/berth-dev/berth/sandbox"
)

const (
	defaultHTTPS   = "127.0.0.1:7443"
	acmeDir        = "acme"
	maxConnections = 16 << 10 // of one listener
)

// ingressFlags say how sandboxes are reached from outside.
type ingressFlags struct {
	https, cert, key        string
	previewURL              string
	acme                    bool
	email, directory, roots string
}

func (f *ingressFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.https, "https-listen", "", "address to listen on with TLS; \"\" is "+defaultHTTPS+" if --listen is left out too, else none")
	flags.StringVar(&f.cert, "tls-cert", "", "certificate of *.DOMAIN and DOMAIN with its chain, in PEM; left out, ca.pem of the data directory signs one")
	flags.StringVar(&f.key, "tls-key", "", "its key, in PEM")
	flags.StringVar(&f.previewURL, "preview-url", "", "scheme, domain and port in the URLs of previews, where a proxy stands before the server: https://DOMAIN")
	flags.BoolVar(&f.acme, "acme", false, "ask a public authority for certificates of domains that were added; by this you agree to its terms")
	flags.StringVar(&f.email, "acme-email", "", "where that authority sends warnings")
	flags.StringVar(&f.directory, "acme-directory", "", "URL of another ACME authority")
	flags.StringVar(&f.roots, "acme-roots", "", "file of roots that the ACME authority itself is trusted by, in PEM")
}

// ingress is the way from outside to the ports of sandboxes.
type ingress struct {
	base    *url.URL     // of previews, without the port and the id
	https   net.Listener // nil: there is none
	acme    *certs.ACME  // nil: there is none
	allowed func(ctx context.Context, name string) error
}

// openIngress makes the authority of the data directory, whoever uses it, and
// listens with TLS if that is asked for.
func openIngress(ctx context.Context, f *serveFlags, data string, plain net.Addr, log *slog.Logger) (_ *ingress, err error) {
	in := &ingress{}
	authority, made, err := certs.OpenAuthority(data, f.domain, time.Now)
	if err != nil {
		return nil, err
	}
	if made {
		log.Info("a new authority signs certificates", "domain", f.domain, "trust", filepath.Join(data, certs.AuthorityFile))
	}
	if in.base, err = f.previewBase(plain, nil); err != nil {
		return nil, err
	}
	address := f.ingress.https
	if address == "" && f.listen == defaultListen {
		address = defaultHTTPS
	}
	if address == "" && f.ingress.acme {
		return nil, usage("give --https-listen too: what was got would be served by nobody", "--acme without a listener with TLS")
	}
	if address == "" {
		return in, nil
	}
	bare, err := listen(ctx, address)
	if err != nil {
		return nil, err
	}
	config := certs.Config{Domain: f.domain, Own: authority}
	if f.ingress.cert != "" || f.ingress.key != "" {
		config.Own, err = certs.OpenFiles(f.ingress.cert, f.ingress.key, time.Now)
	}
	if err == nil && f.ingress.acme {
		in.acme, err = certs.NewACME(certs.ACMEConfig{Dir: filepath.Join(data, acmeDir), Directory: f.ingress.directory, Email: f.ingress.email,
			Roots: f.ingress.roots, HTTP: plain, HTTPS: bare.Addr(), Logger: log,
			Allowed: func(ctx context.Context, name string) error { return in.allowed(ctx, name) }})
		config.Public = in.acme
	}
	if err == nil {
		in.base, err = f.previewBase(plain, bare.Addr())
	}
	if err != nil {
		bare.Close()
		return nil, err
	}
	in.https = tls.NewListener(netutil.LimitListener(bare, maxConnections), certs.TLS(config))
	log.Info("serving with TLS", "url", "https://"+bare.Addr().String())
	return in, nil
}

// previewBase is the address of previews, without what is before the domain.
func (f *serveFlags) previewBase(plain, secure net.Addr) (*url.URL, error) {
	if given := f.ingress.previewURL; given != "" {
		u, err := url.Parse(given)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() != f.domain || u.Path != "" && u.Path != "/" {
			return nil, usage("it looks like https://"+f.domain+", with the port if that is another than usual", "%.200q is not an address of previews", given)
		}
		return &url.URL{Scheme: u.Scheme, Host: u.Host}, nil
	}
	scheme, at, usual := "http", plain, "80"
	if secure != nil {
		scheme, at, usual = "https", secure, "443"
	}
	_, port, err := net.SplitHostPort(at.String())
	if err != nil {
		return nil, &sandbox.Error{Op: "read listener's address", Kind: sandbox.Internal, Err: err}
	}
	host := f.domain
	if port != usual {
		host = net.JoinHostPort(host, port)
	}
	return &url.URL{Scheme: scheme, Host: host}, nil
}

// preview is the address of one port.
func (in *ingress) preview(id sandbox.ID, port int) string {
	return fmt.Sprintf("%s://%s/", in.base.Scheme, edge.Host(id, port, in.base.Host))
}

// doors puts the doors from outside before next.
func (in *ingress) doors(e edge.Engine, domain string, next http.Handler, log *slog.Logger) (http.Handler, *edge.Edge) {
	in.allowed = func(ctx context.Context, name string) error {
		_, _, err := e.DomainTarget(ctx, name)
		return err
	}
	door := edge.New(edge.Config{Engine: e, Domain: domain, Next: next, Logger: log})
	if in.acme == nil {
		return door, door
	}
	return in.acme.Challenges(door), door
}

// listeners are those to serve on beside the plain one.
func (in *ingress) listeners() []net.Listener {
	if in.https == nil {
		return nil
	}
	return []net.Listener{in.https}
}

func (in *ingress) close() error {
	if in.acme != nil {
		in.acme.Close()
	}
	if in.https != nil {
		return in.https.Close()
	}
	return nil
}
