package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/miekg/dns"
	"github.com/vishvananda/netlink"
)

// What stands for the internet: an address that this machine has for as long as the
// server runs, and which the operator opens to the sandboxes.
const (
	site      = "198.18.78.2"
	siteNames = "upstream.example"
	resolver  = "127.78.0.1:5378"
)

// outside is a site with TLS and a server of its names.
type outside struct {
	flags []string // of a server that reaches it
	undo  []func() error
}

func openOutside() (o *outside, err error) {
	o = &outside{}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("stand for the internet: %w", err), o.close())
		}
	}()
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return o, err
	}
	address, err := netlink.ParseAddr(site + "/32")
	if err != nil {
		return o, err
	}
	if err := netlink.AddrReplace(lo, address); err != nil {
		return o, err
	}
	o.undo = append(o.undo, func() error { return netlink.AddrDel(lo, address) })
	certificate, roots, err := newCertificate()
	if err != nil {
		return o, err
	}
	o.undo = append(o.undo, func() error { return os.Remove(roots) })
	l, err := tls.Listen("tcp", site+":443", &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"http/1.1"}})
	if err != nil {
		return o, err
	}
	web := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") })}
	go web.Serve(l) // ends with Close
	o.undo = append(o.undo, web.Close)
	packets, err := net.ListenPacket("udp", resolver)
	if err != nil {
		return o, err
	}
	o.undo = append(o.undo, packets.Close)
	names := &dns.Server{PacketConn: packets, Handler: dns.HandlerFunc(answer)}
	go names.ActivateAndServe() // ends with packets
	o.flags = []string{"--resolver", resolver, "--egress-allow", site + "/32", "--egress-ca", roots}
	return o, nil
}

func (o *outside) close() (err error) {
	for i := len(o.undo) - 1; i >= 0; i-- {
		err = errors.Join(err, o.undo[i]())
	}
	o.undo = nil
	return err
}

// answer gives every name the site's address.
func answer(w dns.ResponseWriter, q *dns.Msg) {
	m := new(dns.Msg).SetReply(q)
	if ask := q.Question[0]; ask.Qtype == dns.TypeA {
		m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: ask.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: net.ParseIP(site)}}
	}
	w.WriteMsg(m) // who got none asks again
}

// newCertificate makes a certificate of the site's names, and a file of who signed it.
func newCertificate() (c tls.Certificate, roots string, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return c, "", err
	}
	t := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		DNSNames: []string{"*." + siteNames}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return c, "", err
	}
	f, err := os.CreateTemp("", "berth-bench-*.pem")
	if err != nil {
		return c, "", err
	}
	err = errors.Join(pem.Encode(f, &pem.Block{Type: "CERTIFICATE", Bytes: der}), f.Close())
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, f.Name(), err
}
