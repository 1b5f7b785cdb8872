package netgw

import (
	"context"
	"net"
	"net/netip"

	"github.com/berth-dev/berth/sandbox"
)

// interceptor takes over the connections whose requests a policy looks at.
//
// Every inspected connection is either TLS whose client has named an inspected
// host, or plain HTTP to one; and so is plain HTTP to a host that only a domain
// rule allows, as each of its requests may name another one. Nothing that the
// client sent has left yet: guest replays it from its first byte.
type interceptor interface {
	// Check reports what of a sandbox's policy it cannot do: a secret that is not
	// there, a handler that is out of bounds. It does not look at the rest.
	Check(*sandbox.Sandbox) error

	// Intercept serves the connection to its end, the flow's context's at the
	// latest, and closes nothing: the gateway closes both sides. An error is the
	// reason of the audit's entry.
	Intercept(ctx context.Context, f *Flow, guest net.Conn) error
}

// Flow is a connection that an interceptor has taken over.
type Flow struct {
	Sandbox sandbox.ID
	Name    string // of the sandbox, if it has one
	Account string

	Host string         // the server's name, as the client's first bytes have it: lower case, without a port
	Addr netip.AddrPort // what the client dialled
	TLS  bool           // the first bytes are a ClientHello
	HTTP bool           // they are a request in plain text; of connections that a diverter is shown alone

	f *flow
}

// Dial opens a connection to the flow's host, on the port that the client
// dialled: to the address that the client chose if this sandbox has it from the
// gateway's own answer for Host, otherwise to one that Host resolves to now. So
// the destination and the name agree, and the address has been judged. It may be
// called many times.
func (f *Flow) Dial(ctx context.Context) (net.Conn, error) { return f.f.dialHost(ctx, f.Host) }

// Policy is the sandbox's policy at this moment.
func (f *Flow) Policy() sandbox.Policy { return f.f.policy() }

// Request judges one request by the policy of this moment. The host is the
// request's own, without a port; it must be Flow.Host or what the caller has made
// sure is served in its place. The caller tells the outcome by Note.
func (f *Flow) Request(method, host, path string) Judgement {
	return f.f.request(method, host, path)
}

// Judgement is what a policy says to a request.
type Judgement struct {
	Allowed bool
	Rule    string // that decided
	Reason  string // of a refusal, for the audit and for people
}

// Note adds an entry about a request to the audit. The gateway fills in whose it
// is, the time if it is zero, the address and the host.
func (f *Flow) Note(e sandbox.AuditEntry) { f.f.note(e) }
