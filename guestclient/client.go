// Package guestclient is the host's side of the guest contract.
//
// It treats the guest as hostile: answers are bounded in size and time, texts
// in length, numbers to their ranges, and events must come in their order. What
// breaks these rules is an error of kind Internal, never a wrong value.
package guestclient

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/guestapi"
	guestv1 "github.com/berth-dev/berth/guestapi/v1"
	"github.com/berth-dev/berth/sandbox"
)

const (
	callTime    = 30 * time.Second // for a unary call whose context has no deadline
	idleTime    = time.Minute      // after which an unused connection is closed
	pingAfter   = 15 * time.Second // of silence on a connection in use
	pingTime    = 30 * time.Second // for the answer
	maxMessage  = 4 << 20          // bytes of one answer
	maxHeader   = 64 << 10         // bytes of one answer's header
	fileStreams = 8                // idle connections kept for file bodies
)

// Client speaks to one guest. It connects when it is first used, and again when
// a connection has broken. Its methods may be called from many goroutines;
// errors are *sandbox.Error with the guest's kind, or Unavailable when the guest
// cannot be reached.
type Client struct {
	*services
	dial  func(context.Context) (net.Conn, error)
	ways  *ways           // of every call
	calls *http.Transport // HTTP/2: one connection for many calls
	brief *inline         // HTTP/1.1: one connection for each call that is soon over
	files *http.Transport // HTTP/1.1: one connection for each body
	http  *http.Client    // over files

	carrier driver.Carrier // moves large files past the link; may be nil
}

// Keeper is a machine that keeps the client of its guest: all who speak to that share
// connections then.
type Keeper interface{ Guest() *Client }

// Of is the client of a machine's guest: the one that the machine keeps, or a new one.
func Of(m driver.Machine) *Client {
	if k, ok := m.(Keeper); ok {
		return k.Guest()
	}
	return Anew(m)
}

// Anew makes a client of a machine's guest that shares nothing with others. Where the
// machine can, the bytes of large files do not pass the link.
func Anew(m driver.Machine) *Client {
	c := New(m.Dial)
	c.carrier, _ = m.(driver.Carrier)
	return c
}

// New makes a client over connections that dial opens. Each must speak HTTP at
// once, as those of driver.Machine do.
func New(dial func(context.Context) (net.Conn, error)) *Client {
	dialer := func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }
	c := &Client{
		dial: dial,
		calls: &http.Transport{
			DialContext: dialer, Protocols: new(http.Protocols), DisableCompression: true,
			IdleConnTimeout: idleTime, MaxResponseHeaderBytes: maxHeader,
			HTTP2: &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTime},
		},
		files: &http.Transport{
			DialContext: dialer, Protocols: new(http.Protocols), DisableCompression: true,
			IdleConnTimeout: idleTime, MaxResponseHeaderBytes: maxHeader,
			MaxIdleConnsPerHost: fileStreams, ExpectContinueTimeout: 5 * time.Second,
			WriteBufferSize: 64 << 10, ReadBufferSize: 64 << 10,
		},
	}
	c.brief = &inline{dial: dial}
	c.calls.Protocols.SetUnencryptedHTTP2(true)
	c.files.Protocols.SetHTTP1(true)
	c.http = &http.Client{Transport: c.files, CheckRedirect: noRedirects}
	c.services = everywhere()
	c.ways = &ways{shared: c.calls, alone: c.brief, busy: make(chan struct{}, briefCalls)}
	return c
}

// Close closes the idle connections. Streams that are open stay so until they
// are closed; a later call connects again.
func (c *Client) Close() error {
	c.calls.CloseIdleConnections()
	c.brief.CloseIdleConnections()
	c.files.CloseIdleConnections()
	return nil
}

// Hello is who a guest says it is.
type Hello struct {
	Protocol  uint32
	Version   string // of the guest's build
	SandboxID string
	PID       int // 1 in a sandbox
	Boot      time.Time
}

// Hello asks the guest who it is. A protocol that this build does not speak is
// Unsupported.
func (c *Client) Hello(ctx context.Context) (Hello, error) {
	const op = "greet the guest"
	r, err := call(c.to(ctx), op, c.rpc.Hello, &guestv1.HelloRequest{})
	if err != nil {
		return Hello{}, err
	}
	if r.Protocol < 1 || r.Protocol > guestapi.Protocol {
		return Hello{}, &sandbox.Error{Op: op, Kind: sandbox.Unsupported,
			Err:  errorf("the guest speaks protocol %d, this build 1 to %d", r.Protocol, guestapi.Protocol),
			Hint: "the sandbox was made by a newer berth: use that one"}
	}
	return Hello{Protocol: r.Protocol, Version: text(r.Version, maxName), SandboxID: text(r.SandboxId, maxName),
		PID: int(r.Pid), Boot: time.Unix(0, r.BootUnixNano)}, nil
}

// call makes a unary call, in callTime unless ctx has a deadline of its own.
func call[Q, A any](ctx context.Context, op string, f func(context.Context, *connect.Request[Q]) (*connect.Response[A], error), q *Q) (*A, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, callTime)
		defer cancel()
	}
	return callLong(briefly(ctx), op, f, q)
}

// callLong makes a unary call that may last as long as ctx.
func callLong[Q, A any](ctx context.Context, op string, f func(context.Context, *connect.Request[Q]) (*connect.Response[A], error), q *Q) (*A, error) {
	a, err := f(ctx, connect.NewRequest(q))
	if err != nil {
		return nil, failed(ctx, op, err)
	}
	return a.Msg, nil
}

// checkText refuses texts that no message can carry.
func checkText(op string, texts ...string) error {
	for _, s := range texts {
		if !utf8.ValidString(s) {
			return sandbox.Errorf(op, sandbox.Invalid, "%.80q is not UTF-8", s)
		}
	}
	return nil
}

// failed turns an error of a call into one of the vocabulary.
func failed(ctx context.Context, op string, err error) error {
	if connect.IsWireError(err) {
		var e *connect.Error
		errors.As(err, &e)
		return &sandbox.Error{Op: op, Kind: sandbox.Kind(guestapi.KindOf(e.Code())),
			Err: errors.New(text(e.Message(), maxText)), Hint: text(e.Meta().Get(guestapi.HintHeader), maxText)}
	}
	return unreached(ctx, op, err)
}

// unreached is the error of a call that got no answer of the guest's.
func unreached(ctx context.Context, op string, err error) error {
	if ctx.Err() != nil {
		return &sandbox.Error{Op: op, Err: ctx.Err()}
	}
	var known *sandbox.Error
	if errors.As(err, &known) {
		return &sandbox.Error{Op: op, Err: known}
	}
	if connect.CodeOf(err) == connect.CodeUnimplemented { // no such route
		return tooOld(op)
	}
	kind := sandbox.Unavailable
	if connect.CodeOf(err) == connect.CodeResourceExhausted { // an answer beyond maxMessage
		kind = sandbox.Internal
	}
	return &sandbox.Error{Op: op, Kind: kind, Err: errorf("reach the guest: %w", err)}
}

// tooOld is the error of a call that a guest does not know.
func tooOld(op string) error {
	return &sandbox.Error{Op: op, Kind: sandbox.Unsupported, Err: errors.New("the sandbox's guest is too old to do it"),
		Hint: "the sandbox was made by an older berth: make a new one"}
}
