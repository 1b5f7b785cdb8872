package edge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/berth-dev/berth/publicip"
	"github.com/berth-dev/berth/sandbox"
)

const (
	proveTime = 10 * time.Second // for both looks
	maxProof  = 1 << 10          // bytes of the page
)

// Prover looks whether a domain's owner has proved to have it: by a TXT record, or
// by a page at the domain as it is served now. Its answers are not kept.
type Prover struct {
	Resolver *net.Resolver         // nil means the system's
	Allowed  func(netip.Addr) bool // addresses that a page is fetched from; nil means public ones
}

// Prove returns nil for a domain that is proved, or Forbidden.
func (p *Prover) Prove(ctx context.Context, d sandbox.Domain) error {
	ctx, cancel := context.WithTimeout(ctx, proveTime)
	defer cancel()
	dnsErr := p.record(ctx, d)
	if dnsErr == nil {
		return nil
	}
	pageErr := p.page(ctx, d)
	if pageErr == nil {
		return nil
	}
	return &sandbox.Error{Op: "look for proof", Kind: sandbox.Forbidden, Err: fmt.Errorf("%w; %w", dnsErr, pageErr),
		Hint: fmt.Sprintf("add the TXT record %q to %s, or serve that text at http://%s%s", d.Proof.TXTValue, d.Proof.TXTName, d.Name, d.Proof.Path)}
}

func (p *Prover) resolver() *net.Resolver {
	if p.Resolver == nil {
		return net.DefaultResolver
	}
	return p.Resolver
}

func (p *Prover) record(ctx context.Context, d sandbox.Domain) error {
	values, err := p.resolver().LookupTXT(ctx, d.Proof.TXTName+".")
	if err != nil {
		return fmt.Errorf("TXT record: %w", err)
	}
	if !slices.Contains(values, d.Proof.TXTValue) {
		return fmt.Errorf("TXT record: none of the %d values of %s is the one", len(values), d.Proof.TXTName)
	}
	return nil
}

// page asks the domain itself. It goes to public addresses only, and nowhere else
// that it is sent.
func (p *Prover) page(ctx context.Context, d sandbox.Domain) error {
	dialer := &net.Dialer{Resolver: p.resolver(), ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err == nil && !p.allowed(at.Addr().Unmap()) {
			err = fmt.Errorf("%s is no public address", at.Addr())
		}
		return err
	}}
	t := &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+d.Name+d.Proof.Path, nil)
	if err != nil {
		return err
	}
	resp, err := t.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("page: %w", err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxProof))
	switch {
	case err != nil:
		return fmt.Errorf("page: %w", err)
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("page: its status is %d", resp.StatusCode)
	case strings.TrimSpace(string(b)) != d.Proof.Body:
		return errors.New("page: it has another text")
	}
	return nil
}

func (p *Prover) allowed(a netip.Addr) bool {
	if p.Allowed != nil {
		return p.Allowed(a)
	}
	return publicip.Is(a)
}
