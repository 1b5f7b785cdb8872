package main

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/berth-dev/berth/netgw"
	"github.com/berth-dev/berth/netgw/intercept"
	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/secret"
)

const (
	secretKeyFile  = "secret.key"  // seals secrets; without it they are lost
	handlerKeyFile = "handler.key" // signs what handlers are sent
)

// credentialFlags are the operator's settings for what is put into requests.
type credentialFlags struct {
	key      string
	roots    []string
	handlers []string
	urls     bool
}

func (f *credentialFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.key, "secret-key", "", "file of the key that seals secrets, 64 hex digits (default: secret.key of the data directory, made at the first start)")
	flags.StringSliceVar(&f.roots, "egress-ca", nil, "file of certificates, as PEM, to trust beside the system's where requests of sandboxes are looked into")
	flags.StringArrayVar(&f.handlers, "handler", nil, "NAME=URL or NAME=/PROGRAM ARGUMENT…: a handler that policies may name")
	flags.BoolVar(&f.urls, "handler-urls", false, "policies may name handlers by addresses of their own, public ones")
}

// secretKeeping are the parts that keep secrets and put them in.
type secretKeeping struct {
	vault   *secret.Vault
	proxy   *intercept.Proxy
	gateway *netgw.Gateway // set before anything is served
}

// dialPublic reaches no more than a sandbox could.
func (k *secretKeeping) dialPublic(ctx context.Context, network, address string) (net.Conn, error) {
	return k.gateway.DialPublic(ctx, network, address)
}

// openSecrets opens the vault of a data directory, and what uses it.
func openSecrets(ctx context.Context, f *credentialFlags, data string, records record.Store, log *slog.Logger) (*secretKeeping, error) {
	key, err := f.sealingKey(data)
	if err != nil {
		return nil, err
	}
	defer clear(key)
	sealer, err := secret.NewSealer(key)
	if err != nil {
		return nil, err
	}
	if err := sealer.Prove(ctx, records); err != nil {
		return nil, err
	}
	roots, err := f.pool()
	if err != nil {
		return nil, err
	}
	handlers, err := f.handlerSet(data)
	if err != nil {
		return nil, err
	}
	k := &secretKeeping{vault: secret.NewVault(records, sealer, nil)}
	if f.urls {
		handlers.Dial = k.dialPublic
	}
	k.proxy, err = intercept.New(intercept.Config{Secrets: k.vault, Grants: secret.NewGrants(records), Values: secret.NewValues(records, sealer),
		Records: records, Sealer: sealer, Roots: roots, Handlers: handlers, Logger: log})
	if err != nil {
		return nil, err
	}
	return k, nil
}

// sealingKey is the key of a file, which is made if nobody named it.
func (f *credentialFlags) sealingKey(data string) ([]byte, error) {
	if f.key != "" {
		return secret.ReadKey(f.key)
	}
	path := filepath.Join(data, secretKeyFile)
	if err := makeKey(path, secret.KeySize); err != nil {
		return nil, err
	}
	return secret.ReadKey(path)
}

// makeKey makes a key file that is not there.
func makeKey(path string, size int) error {
	_, err := os.Stat(path)
	if !errors.Is(err, fs.ErrNotExist) {
		if err != nil {
			return dataError(path, err)
		}
		return nil
	}
	b := make([]byte, size)
	rand.Read(b) // never fails: it ends the program instead
	defer clear(b)
	return writeSecret(path, hex.EncodeToString(b)+"\n")
}

// pool is the system's authorities and the operator's, or nil for the system's
// alone.
func (f *credentialFlags) pool() (*x509.CertPool, error) {
	if len(f.roots) == 0 {
		return nil, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, &sandbox.Error{Op: "read the system's certificates", Kind: sandbox.Internal, Err: err}
	}
	for _, path := range f.roots {
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, &sandbox.Error{Op: "read certificates", Kind: sandbox.Invalid, Err: err, Hint: "give --egress-ca a file of PEM"}
		}
		if !pool.AppendCertsFromPEM(b) {
			return nil, &sandbox.Error{Op: "read certificates", Kind: sandbox.Invalid, Err: fmt.Errorf("%s holds none", path), Hint: "give --egress-ca a file of PEM"}
		}
	}
	return pool, nil
}

// handlerSet is what the operator has set up.
func (f *credentialFlags) handlerSet(data string) (intercept.Handlers, error) {
	h := intercept.Handlers{Named: map[string]intercept.Endpoint{}}
	for _, s := range f.handlers {
		name, what, ok := strings.Cut(s, "=")
		if _, twice := h.Named[name]; !ok || twice {
			return h, usage("give --handler NAME=URL or --handler 'NAME=/PROGRAM ARGUMENT…', each name once", "%.200q is no handler", s)
		}
		e := intercept.Endpoint{URL: what}
		if strings.HasPrefix(what, "/") {
			e = intercept.Endpoint{Program: strings.Fields(what)}
		}
		h.Named[name] = e
	}
	if len(h.Named) == 0 {
		return h, nil
	}
	path := filepath.Join(data, handlerKeyFile)
	if err := makeKey(path, secret.KeySize); err != nil {
		return h, err
	}
	key, err := secret.ReadKey(path)
	h.Key = key
	return h, err
}

// looking lets the gateway hand connections to the proxy.
type looking struct{ *intercept.Proxy }

// Check leaves what a policy needs to whoever sets it: one that is in force stays
// so when a secret is removed, and what needs the secret is refused then.
func (looking) Check(*sandbox.Sandbox) error { return nil }

func (l looking) Intercept(ctx context.Context, f *netgw.Flow, guest net.Conn) error {
	return l.Serve(ctx, &intercept.Flow{
		Sandbox: f.Sandbox, Name: f.Name, Account: f.Account, Host: f.Host, Addr: f.Addr, TLS: f.TLS,
		Dial: f.Dial, Policy: f.Policy, Note: f.Note,
		Judge: func(method, host, path string) intercept.Judgement {
			return intercept.Judgement(f.Request(method, host, path))
		},
	}, guest)
}
