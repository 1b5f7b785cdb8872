package rig

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/vishvananda/netlink"
)

// Address gives this machine an address until the test ends, for what stands outside of all
// sandboxes. Packages of tests run at once: no two may use the same one. Without root it skips
// the test, loudly.
func Address(t *testing.T, a string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED LOUDLY: it takes root to add an address; nothing that sandboxes send is tried by this run")
	}
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	ip := netip.MustParseAddr(a)
	address, err := netlink.ParseAddr(netip.PrefixFrom(ip, ip.BitLen()).String())
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.AddrReplace(loopback, address); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := netlink.AddrDel(loopback, address); err != nil {
			t.Error(err)
		}
	})
}

// Certificate makes a certificate of some names that signs itself, and a file of who signed it.
func Certificate(t *testing.T, names ...string) (c tls.Certificate, roots string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	is := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "outside"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		DNSNames: names, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	der, err := x509.CreateCertificate(rand.Reader, is, is, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	roots = filepath.Join(t.TempDir(), "roots.pem")
	if err := os.WriteFile(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, roots
}

// Names runs a name server at an address until the test ends.
func Names(t *testing.T, at string, answers dns.HandlerFunc) {
	t.Helper()
	packets, err := net.ListenPacket("udp", at)
	if err != nil {
		t.Fatal(err)
	}
	s := &dns.Server{PacketConn: packets, Handler: answers}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.ActivateAndServe() // until the socket is closed
	}()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		s.ShutdownContext(ctx)
		packets.Close() // also of one that had not begun
		<-ended
	})
}

// Zone answers that every name beneath a zone is at one address of IPv4, and that there are no
// others.
func Zone(zone, at string) dns.HandlerFunc {
	return func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		if ask := q.Question[0]; !dns.IsSubDomain(zone+".", strings.ToLower(ask.Name)) {
			m.Rcode = dns.RcodeNameError
		} else if ask.Qtype == dns.TypeA {
			m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: ask.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: net.ParseIP(at)}}
		}
		w.WriteMsg(m) // who asked has gone otherwise
	}
}
