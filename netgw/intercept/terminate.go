package intercept

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"

	"github.com/berth-dev/berth/sandbox"
)

// Terminate ends the TLS of a sandbox's connection with a certificate of its own
// authority for host, a name or an address, and HTTP/1.1 alone. What it returns
// carries the plain bytes; closing it closes c.
//
// Unavailable: the client does not trust the authority, or asks for another host.
func (p *Proxy) Terminate(ctx context.Context, id sandbox.ID, host string, c net.Conn) (net.Conn, error) {
	const op = "answer the client's TLS"
	a, err := p.authorities.get(ctx, id)
	if err != nil {
		return nil, &sandbox.Error{Op: op, Err: err}
	}
	t := tls.Server(c, &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, Time: p.now,
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if hello.ServerName != "" && !strings.EqualFold(strings.TrimSuffix(hello.ServerName, "."), host) {
				return nil, fmt.Errorf("the client asks for %.80q, not for %s", hello.ServerName, host)
			}
			return a.certificate(host, p.now())
		},
	})
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	if err := t.HandshakeContext(ctx); err != nil {
		return nil, &sandbox.Error{Op: op, Kind: sandbox.Unavailable, Err: err,
			Hint: "a program that brings its own list of authorities must be told to use the system's"}
	}
	return t, nil
}
