package guest

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	guestv1 "github.com/berth-dev/berth/guestapi/v1"
)

const (
	knockPause = 50 * time.Millisecond // between two looks at a port
	knockTime  = 5 * time.Second       // for one address to answer
)

func itoa(n int32) string { return strconv.Itoa(int(n)) }

// waitPort knocks at a port until it answers as asked. p is nil for a port of no
// process.
func waitPort(ctx context.Context, p *process, r *guestv1.WaitPortRequest) (*guestv1.WaitPortResponse, error) {
	if r.Port < 1 || r.Port > 65535 {
		return nil, refuse(invalid, "", "%d is not a port", r.Port)
	}
	k, err := newKnocker(r)
	if err != nil {
		return nil, err
	}
	defer k.http.CloseIdleConnections()
	ctx, cancel := within(ctx, r.TimeoutMs)
	defer cancel()
	var over <-chan struct{}
	if p != nil {
		over = p.done
	}
	ended := false
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-pause.C:
		case <-over:
			ended, over = true, nil // it may have left the port to another: look once more
		case <-ctx.Done():
			return nil, late(ctx, r.TimeoutMs, k.last())
		}
		if found := k.knock(ctx); found != nil {
			return found, nil
		}
		if ended {
			return nil, endedFirst(p, p.describe().Exit, "answered at port "+itoa(r.Port))
		}
		pause.Reset(knockPause)
	}
}

// knocker tries one port at every address of the sandbox.
type knocker struct {
	want *guestv1.WaitPortRequest
	http *http.Transport
	seen int // the last status that was not the one wanted
}

func newKnocker(r *guestv1.WaitPortRequest) (*knocker, error) {
	if r.Path != "" {
		if _, err := http.NewRequest(http.MethodGet, "http://localhost"+r.Path, nil); err != nil || r.Path[0] != '/' {
			return nil, refuse(invalid, "a path looks like /health", "%.80q is not a path", r.Path)
		}
	}
	return &knocker{want: r, http: &http.Transport{DisableKeepAlives: true, DisableCompression: true,
		ResponseHeaderTimeout: knockTime, MaxResponseHeaderBytes: 64 << 10,
		DialContext: (&net.Dialer{Timeout: knockTime}).DialContext}}, nil
}

// last says what is missing.
func (k *knocker) last() string {
	if k.seen != 0 {
		return "port " + itoa(k.want.Port) + " answered with status " + strconv.Itoa(k.seen) + " only"
	}
	return "port " + itoa(k.want.Port) + " did not answer"
}

func (k *knocker) knock(ctx context.Context) *guestv1.WaitPortResponse {
	for _, host := range addresses() {
		address := net.JoinHostPort(host, itoa(k.want.Port))
		status, ok := 0, false
		if k.want.Path == "" {
			ok = connects(ctx, address)
		} else {
			status, ok = k.ask(ctx, address)
		}
		if ok {
			return &guestv1.WaitPortResponse{Address: address, Status: int32(status)}
		}
		if ctx.Err() != nil {
			return nil
		}
	}
	return nil
}

func connects(ctx context.Context, address string) bool {
	c, err := (&net.Dialer{Timeout: knockTime}).DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	c.Close()
	return true
}

// ask sends one request and looks at its status alone.
func (k *knocker) ask(ctx context.Context, address string) (int, bool) {
	ctx, cancel := context.WithTimeout(ctx, knockTime)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+k.want.Path, nil)
	if err != nil {
		return 0, false
	}
	q.Host = net.JoinHostPort("localhost", itoa(k.want.Port))
	resp, err := k.http.RoundTrip(q)
	if err != nil {
		return 0, false
	}
	resp.Body.Close()
	k.seen = resp.StatusCode
	if k.want.Status != 0 {
		return resp.StatusCode, resp.StatusCode == int(k.want.Status)
	}
	return resp.StatusCode, resp.StatusCode >= 200 && resp.StatusCode < 400
}

// addresses are those at which a server in the sandbox may listen, loopback
// first.
func addresses() []string {
	list := []string{"127.0.0.1", "::1"}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return list
	}
	for _, a := range own {
		p, err := netip.ParsePrefix(a.String())
		if err == nil && !p.Addr().IsLoopback() && !p.Addr().IsLinkLocalUnicast() && len(list) < 16 {
			list = append(list, p.Addr().String())
		}
	}
	return list
}
