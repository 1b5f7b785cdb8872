package guestclient

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"connectrpc.com/connect"

	"github.com/berth-dev/berth/guestapi/v1/guestv1connect"
)

// origin fills the place of a host name; the call's context knows where the guest is.
const origin = "http://guest"

// services are the calls of the guest contract, to whichever guest a call's context
// names. All Clients share them: what a generated client keeps for each call of the
// contract comes to many times what else a Client is.
type services struct {
	rpc   guestv1connect.GuestClient
	procs guestv1connect.ProcessesClient
	shell guestv1connect.SessionsClient
	terms guestv1connect.TerminalsClient
	tools guestv1connect.FilesClient
	eyes  guestv1connect.WatcherClient
	ports guestv1connect.PortsClient
	code  guestv1connect.KernelsClient
	self  guestv1connect.IdentityClient
}

var everywhere = sync.OnceValue(func() *services {
	over := &http.Client{Transport: named{}, CheckRedirect: noRedirects}
	plain := connect.WithAcceptCompression("gzip", nil, nil)
	bounds := []connect.ClientOption{connect.WithReadMaxBytes(maxMessage), plain}
	return &services{
		rpc:   guestv1connect.NewGuestClient(over, origin, bounds...),
		procs: guestv1connect.NewProcessesClient(over, origin, bounds...),
		shell: guestv1connect.NewSessionsClient(over, origin, bounds...),
		terms: guestv1connect.NewTerminalsClient(over, origin, bounds...),
		tools: guestv1connect.NewFilesClient(over, origin, bounds...),
		eyes:  guestv1connect.NewWatcherClient(over, origin, bounds...),
		ports: guestv1connect.NewPortsClient(over, origin, bounds...),
		self:  guestv1connect.NewIdentityClient(over, origin, bounds...),
		code:  guestv1connect.NewKernelsClient(over, origin, connect.WithReadMaxBytes(maxCodeEvent), plain),
	}
})

func noRedirects(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// guestKey marks, in a context, the ways to the guest that a call is for.
type guestKey struct{}

// to names this guest as the one that the calls of a context are for.
func (c *Client) to(ctx context.Context) context.Context {
	return context.WithValue(ctx, guestKey{}, c.ways)
}

// named carries each request to the guest that its context names.
type named struct{}

// RoundTrip implements http.RoundTripper.
func (named) RoundTrip(r *http.Request) (*http.Response, error) {
	w, ok := r.Context().Value(guestKey{}).(*ways)
	if !ok {
		return nil, errors.New("the call names no guest")
	}
	return w.RoundTrip(r)
}
