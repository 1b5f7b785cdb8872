package certs

import (
	"crypto/tls"
	"fmt"
	"strings"
)

// source gives one certificate.
type source interface {
	Certificate() (*tls.Certificate, error)
}

// Config says where certificates come from.
type Config struct {
	Domain string // of the server
	Own    source // of the domain and the names right beneath it: Files or an Authority
	Public *ACME  // of all other names; nil: they get none
}

// TLS is the configuration of a listener.
func TLS(c Config) *tls.Config {
	t := &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			name := strings.ToLower(strings.TrimSuffix(hello.ServerName, "."))
			if name == "" || name == c.Domain || strings.HasSuffix(name, "."+c.Domain) {
				return c.Own.Certificate()
			}
			if c.Public == nil {
				return nil, fmt.Errorf("no certificate for %q", name)
			}
			return c.Public.certificate(hello)
		},
	}
	if c.Public != nil {
		t.NextProtos = append(t.NextProtos, c.Public.protocols()...)
	}
	return t
}
