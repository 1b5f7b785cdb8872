package netgw

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sandbox"
)

// The outside of these tests: a namespace whose loopback has addresses of the
// internet, and of what must never be reached, with something that listens on
// each. No packet leaves the machine.
const (
	site      = "93.184.216.34"
	otherSite = "93.184.216.99"
	site6     = "2606:2800:220:1::34"
	resolving = "8.8.8.8"
)

// forbiddenPlaces are in the outside too, and answer.
var forbiddenPlaces = []string{
	"169.254.169.254", "10.1.2.3", "172.20.0.1", "192.168.1.1", "100.64.0.1", "100.100.100.200", "168.63.129.16", "192.0.0.192",
	"198.18.0.1", "203.0.113.9", "192.88.99.1", "0.0.0.5", "240.0.0.1",
	"fd00:ec2::254", "fe80::1:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2002:a9fe:a9fe::1", "2001:0:a9fe::1", "2001:db8::1", "::a9fe:a9fe", "fec0::1", "100::1",
}

// world is a gateway with an outside, and one sandbox whose kernel is a
// namespace's own.
type world struct {
	t       *testing.T
	outside *Namespace
	gateway *Gateway
	notes   *notes
	dns     *names
	guest   *Namespace
	id      sandbox.ID
}

const boxID = sandbox.ID("aaaaaaaaaaaaaaaaaaaa")

// newWorld makes one. change may alter the gateway's configuration.
func newWorld(t *testing.T, p *sandbox.Policy, change func(*Config)) *world {
	t.Helper()
	w := &world{t: t, guest: inside(t), notes: &notes{}, id: boxID}
	w.outside = newOutside(t)
	w.dns = &names{records: map[string][]string{}}
	w.dns.serve(w)
	c := Config{Resolvers: []netip.AddrPort{netip.MustParseAddrPort(resolving + ":53")}, Dial: w.outside.dial, Audit: w.notes}
	if change != nil {
		change(&c)
	}
	var err error
	if w.gateway, err = New(c); err != nil {
		t.Fatal(err)
	}
	w.apply(p)
	w.link(w.guest, w.id)
	return w
}

func (w *world) link(ns *Namespace, id sandbox.ID) {
	w.t.Helper()
	l, err := w.gateway.Open(ns, id)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { l.Close() })
}

func (w *world) apply(p *sandbox.Policy) {
	w.t.Helper()
	if err := w.gateway.Apply(w.t.Context(), &sandbox.Sandbox{ID: w.id, Account: "main", Policy: p}); err != nil {
		w.t.Fatal(err)
	}
}

func newOutside(t testing.TB) *Namespace {
	t.Helper()
	var n *Namespace
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		f, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			return err
		}
		n = &Namespace{f}
		return populate()
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n
}

// populate gives the present namespace the addresses of the outside.
func populate() error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	lo, err := h.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := h.LinkSetUp(lo); err != nil {
		return err
	}
	for _, a := range append([]string{site, otherSite, site6, resolving}, forbiddenPlaces...) {
		addr := netip.MustParseAddr(a)
		err := h.AddrAdd(lo, &netlink.Addr{IPNet: &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(addr.BitLen(), addr.BitLen())}, Flags: unix.IFA_F_NODAD})
		if err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) && !errors.Is(err, unix.EINVAL) { // an address that Linux itself refuses
			return fmt.Errorf("add %s: %w", a, err)
		}
	}
	return nil
}

// dial is net.Dialer.DialContext in the namespace.
func (n *Namespace) dial(ctx context.Context, network, address string) (c net.Conn, err error) {
	nerr := n.within(func() error {
		c, err = new(net.Dialer).DialContext(ctx, network, address)
		return nil
	})
	return c, errors.Join(nerr, err)
}

// listenTCP serves connections to an address of the outside, and returns how many
// there were.
func (w *world) listenTCP(address string, f func(net.Conn)) {
	w.t.Helper()
	var l net.Listener
	err := w.outside.within(func() (err error) {
		l, err = net.Listen("tcp", address)
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); f(c) }()
		}
	}()
}

func echo(c net.Conn) {
	io.Copy(c, c)
	c.(*net.TCPConn).CloseWrite()
}

// connect dials from inside the sandbox.
func (w *world) connect(address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Minute)
	defer cancel()
	return w.guest.dial(ctx, "tcp", address)
}

// mustEcho sends a line from inside the sandbox and wants it back.
func (w *world) mustEcho(address string) net.Conn {
	w.t.Helper()
	c, err := w.connect(address)
	if err != nil {
		w.t.Fatalf("dial %s: %v", address, err)
	}
	w.t.Cleanup(func() { c.Close() })
	if err := says(c, "hello\n"); err != nil {
		w.t.Fatalf("%s: %v", address, err)
	}
	return c
}

func says(c net.Conn, line string) error {
	c.SetDeadline(time.Now().Add(2 * time.Minute))
	if _, err := io.WriteString(c, line); err != nil {
		return err
	}
	b := make([]byte, len(line))
	if _, err := io.ReadFull(c, b); err != nil {
		return err
	}
	if string(b) != line {
		return fmt.Errorf("%q came back", b)
	}
	return nil
}

// mustRefuse wants a connection refused, at the latest when something was sent.
func (w *world) mustRefuse(address, send string) {
	w.t.Helper()
	c, err := w.connect(address)
	if err != nil {
		if !errors.Is(err, unix.ECONNREFUSED) {
			w.t.Errorf("dial %s: %v, want a refusal", address, err)
		}
		return
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(2 * time.Minute))
	if send == "" {
		w.t.Errorf("%s was connected", address)
		return
	}
	io.WriteString(c, send)
	if b, err := io.ReadAll(c); !errors.Is(err, unix.ECONNRESET) || len(b) > 0 {
		w.t.Errorf("%s answered %q, %v to %.40q", address, b, err, send)
	}
}

// notes is an auditor that remembers.
type notes struct {
	mu  sync.Mutex
	all []sandbox.AuditEntry
}

func (n *notes) Note(e sandbox.AuditEntry) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, e)
}

func (n *notes) list() []sandbox.AuditEntry {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.all)
}

// want waits for an entry that f picks.
func (n *notes) want(t *testing.T, what string, f func(sandbox.AuditEntry) bool) sandbox.AuditEntry {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if all := n.list(); slices.ContainsFunc(all, f) {
			return all[slices.IndexFunc(all, f)]
		}
	}
	t.Fatalf("the audit has no entry of %s: %+v", what, n.list())
	return sandbox.AuditEntry{}
}

// names is the outside's name server.
type names struct {
	mu      sync.Mutex
	records map[string][]string // of "A www.example.com.": the data of its records
	asked   []string
}

func (n *names) set(question string, data ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.records[question] = data
}

func (n *names) questions() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.asked)
}

func (n *names) ServeDNS(w dns.ResponseWriter, m *dns.Msg) {
	n.mu.Lock()
	defer n.mu.Unlock()
	q := m.Question[0]
	key := dns.TypeToString[q.Qtype] + " " + strings.ToLower(q.Name)
	n.asked = append(n.asked, key)
	reply := new(dns.Msg)
	reply.SetReply(m)
	data, ok := n.records[key]
	if !ok {
		reply.Rcode = dns.RcodeNameError
	}
	for _, d := range data {
		line := d
		if !strings.Contains(d, " IN ") {
			line = fmt.Sprintf("%s 60 IN %s %s", q.Name, dns.TypeToString[q.Qtype], d)
		}
		rr, err := dns.NewRR(line)
		if err != nil {
			panic(err)
		}
		reply.Answer = append(reply.Answer, rr)
	}
	if _, udp := w.RemoteAddr().(*net.UDPAddr); udp {
		reply.Truncate(1232)
	}
	w.WriteMsg(reply)
}

func (n *names) serve(w *world) {
	w.t.Helper()
	var pc net.PacketConn
	var l net.Listener
	err := w.outside.within(func() (err error) {
		if pc, err = net.ListenPacket("udp", resolving+":53"); err != nil {
			return err
		}
		l, err = net.Listen("tcp", resolving+":53")
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, s := range []*dns.Server{{PacketConn: pc, Handler: n}, {Listener: l, Handler: n}} {
		started := make(chan struct{})
		s.NotifyStartedFunc = func() { close(started) }
		go s.ActivateAndServe()
		<-started
		w.t.Cleanup(func() { s.Shutdown() })
	}
}

// ask asks the gateway from inside the sandbox.
func (w *world) ask(name string, kind uint16) *dns.Msg {
	w.t.Helper()
	return w.askAt("udp", GatewayAddr.String()+":53", name, kind)
}

func (w *world) askAt(network, server, name string, kind uint16) *dns.Msg {
	w.t.Helper()
	c, err := w.guest.dial(w.t.Context(), network, server)
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	m := new(dns.Msg).SetQuestion(dns.Fqdn(name), kind)
	got, _, err := (&dns.Client{Net: network, Timeout: 20 * time.Second}).ExchangeWithConn(m, &dns.Conn{Conn: c})
	if err != nil {
		w.t.Fatalf("ask for %s %s: %v", name, dns.TypeToString[kind], err)
	}
	return got
}
