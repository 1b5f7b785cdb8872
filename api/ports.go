package api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/coder/websocket"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
	"github.com/berth-dev/berth/tunnel"
)

// Ports are the verbs on what listens in a sandbox.
type Ports interface {
	Ports(ctx context.Context, id string) ([]sandbox.Port, error)
	Share(ctx context.Context, id string, port int, r sandbox.ShareRequest) (sandbox.Share, error)
	Dial(ctx context.Context, id string, port int) (net.Conn, error)
}

// Domains are the verbs on names of the caller's own.
type Domains interface {
	AddDomain(ctx context.Context, r sandbox.DomainRequest) (sandbox.Domain, error)
	VerifyDomain(ctx context.Context, name string) (sandbox.Domain, error)
	Domains(ctx context.Context) ([]sandbox.Domain, error)
	Domain(ctx context.Context, name string) (sandbox.Domain, error)
	RemoveDomain(ctx context.Context, name string) error
}

// portURL is the address of a port's preview, or "" where none is served.
func (a *API) portURL(id sandbox.ID, port int) string {
	if a.previews == nil {
		return ""
	}
	return a.previews(id, port)
}

func (a *API) ports(w http.ResponseWriter, r *http.Request) error {
	box, err := a.engine.Get(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	all, err := a.engine.Ports(r.Context(), string(box.ID))
	if err != nil {
		return err
	}
	for i := range all {
		all[i].URL = a.portURL(box.ID, all[i].Port)
	}
	return writeJSON(w, http.StatusOK, wire.Ports{Ports: orEmpty(all)})
}

// sharePort takes an empty body as a request for a token for a day.
func (a *API) sharePort(w http.ResponseWriter, r *http.Request) error {
	port, err := pathPort(r)
	if err != nil {
		return err
	}
	var req sandbox.ShareRequest
	if err := decode(w, r, &req); err != nil && !errors.Is(err, errEmpty) {
		return err
	}
	if err := mayPublish(r.Context(), &req); err != nil {
		return err
	}
	given, err := a.engine.Share(r.Context(), r.PathValue("id"), port, req)
	if err != nil {
		return err
	}
	given.Base = a.portURL(given.Sandbox, port)
	given.URL = given.Base
	if given.Token != "" && given.Base != "" {
		given.URL += "?" + sandbox.ParamToken + "=" + url.QueryEscape(given.Token)
	}
	return writeJSON(w, http.StatusOK, given)
}

// mayPublish is Forbidden for a key that works in sandboxes and would open a port
// of one to everybody: that changes what the account shows.
func mayPublish(ctx context.Context, req *sandbox.ShareRequest) error {
	if req.Public == nil || !*req.Public {
		return nil
	}
	c, err := sandbox.CallerOf(ctx)
	if err == nil && !c.May(sandbox.ScopeAdmin) {
		err = forbidden("the key may not open a port to everybody", "use a key with the scope admin, or leave public out: the URL then holds a token")
	}
	return err
}

func pathPort(r *http.Request) (int, error) {
	text := r.PathValue("port")
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0, &sandbox.Error{Op: "read port", Kind: sandbox.Invalid, Err: fmt.Errorf("%.20q is not a port", text), Hint: "a port is a number from 1 to 65535"}
	}
	return int(port), nil
}

// tunnelPort joins a WebSocket to a port. Until the port has answered an error is
// an answer as any other.
func (a *API) tunnelPort(w http.ResponseWriter, r *http.Request) error {
	port, err := pathPort(r)
	if err != nil {
		return err
	}
	if !isWebSocket(r) || !strings.Contains(strings.Join(r.Header.Values("Sec-WebSocket-Protocol"), ","), tunnel.Protocol) {
		return &sandbox.Error{Op: "open tunnel", Kind: sandbox.Invalid, Err: errors.New("it is no WebSocket of the tunnel's protocol"),
			Hint: "ask for a WebSocket with the protocol " + tunnel.Protocol + ", or use berth forward"}
	}
	ctx, cancel := a.untilClose(r)
	defer cancel()
	inside, err := a.engine.Dial(ctx, r.PathValue("id"), port)
	if err != nil {
		return err
	}
	defer inside.Close()
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{tunnel.Protocol}})
	if err != nil {
		return nil // Accept has answered
	}
	outside := tunnel.New(ws)
	ctx, over := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if outside.Ping(ctx, pingEvery, pongTime) != nil {
			outside.Close()
		}
	}()
	_ = tunnel.Join(ctx, outside, inside) // both sides have seen how it ended
	over()
	<-done
	return nil
}

func (a *API) addDomain(w http.ResponseWriter, r *http.Request) error {
	var req sandbox.DomainRequest
	if err := decode(w, r, &req); err != nil {
		return err
	}
	d, err := a.engine.AddDomain(r.Context(), req)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, d)
}

func (a *API) domains(w http.ResponseWriter, r *http.Request) error {
	all, err := a.engine.Domains(r.Context())
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, wire.Domains{Domains: orEmpty(all)})
}

func (a *API) domain(w http.ResponseWriter, r *http.Request) error {
	d, err := a.engine.Domain(r.Context(), r.PathValue("domain"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, d)
}

func (a *API) verifyDomain(w http.ResponseWriter, r *http.Request) error {
	d, err := a.engine.VerifyDomain(r.Context(), r.PathValue("domain"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, d)
}

func (a *API) removeDomain(w http.ResponseWriter, r *http.Request) error {
	if err := a.engine.RemoveDomain(r.Context(), r.PathValue("domain")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
