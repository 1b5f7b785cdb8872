package config

import (
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/berth-dev/berth/sandbox"
)

// HTTPS is the server's listener with TLS.
type HTTPS struct {
	Listen      string `toml:"listen"`      // address, as --https-listen
	Certificate string `toml:"certificate"` // file, as --tls-cert
	Key         string `toml:"key"`         // file, as --tls-key
	PreviewURL  string `toml:"preview_url"` // that of previews begins with it, as --preview-url
}

// ACME says who is asked for certificates of domains that were added.
type ACME struct {
	Enabled   bool   `toml:"enabled"`   // as --acme
	Email     string `toml:"email"`     // as --acme-email
	Directory string `toml:"directory"` // URL, as --acme-directory
	Roots     string `toml:"roots"`     // file, as --acme-roots
}

// Egress is the operator's part in what leaves the sandboxes.
type Egress struct {
	Allow       []Prefix `toml:"allow"`       // as --egress-allow
	Deny        []Prefix `toml:"deny"`        // as --egress-deny
	Resolvers   []string `toml:"resolvers"`   // as --resolver
	Connections int      `toml:"connections"` // as --egress-connections
	Authorities []string `toml:"authorities"` // files, as --egress-ca

	Handlers    map[string]string `toml:"handlers"`     // by name: a URL or a command line, as --handler
	HandlerURLs bool              `toml:"handler_urls"` // as --handler-urls
}

// Audit bounds what is kept of it.
type Audit struct {
	Size Size `toml:"size"` // as --audit-size
	Days int  `toml:"days"` // as --audit-days
}

// checkDoors checks what says how a server is reached, and what it reaches.
func (f *File) checkDoors() error {
	h := f.HTTPS
	if _, _, err := net.SplitHostPort(h.Listen); h.Listen != "" && err != nil {
		return bad("https.listen", "give HOST:PORT", "%.100q is not an address to listen on", h.Listen)
	}
	if (h.Certificate == "") != (h.Key == "") {
		return bad("https", "give certificate and key, or neither", "one of the two is missing")
	}
	if u, err := url.Parse(f.ACME.Directory); f.ACME.Directory != "" && (err != nil || u.Scheme != "https" || u.Host == "") {
		return bad("acme.directory", "such as https://acme.example.com/directory", "%.100q is not an https address", f.ACME.Directory)
	}
	if n := f.Egress.Connections; n < 0 || n > 1<<16 {
		return bad("egress.connections", "leave it out for the default", "it is %d, 1 to 65536 are taken", n)
	}
	for _, r := range f.Egress.Resolvers {
		_, err := netip.ParseAddr(r)
		if _, perr := netip.ParseAddrPort(r); err != nil && perr != nil {
			return bad("egress.resolvers", "give an address, with or without a port", "%.80q is no address of a resolver", r)
		}
	}
	for name, to := range f.Egress.Handlers {
		if err := sandbox.CheckName(name); err != nil {
			return &sandbox.Error{Op: "check egress.handlers", Err: err}
		}
		if !slices.ContainsFunc([]string{"/", "http://", "https://"}, func(p string) bool { return strings.HasPrefix(to, p) }) {
			return bad("egress.handlers", "give a URL, or the path of a program and its arguments", "%s is %.80q", name, to)
		}
	}
	if f.Audit.Size < 0 || f.Audit.Days < 0 {
		return bad("audit", "leave a bound out for the default", "a bound is negative")
	}
	return nil
}
