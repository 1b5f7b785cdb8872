package s3

import (
	"context"
	"net"
	"net/http"
	"time"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
)

// newClient returns an HTTP client whose connections end when nothing moves on
// them for a while: neither an answer that does not come nor a body that stops
// holds a caller for longer. It is of the library's own type so that AWS_CA_BUNDLE
// works.
func newClient(stall time.Duration) *awshttp.BuildableClient {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	return awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &moving{Conn: c, stall: stall}, nil
		}
		t.MaxIdleConnsPerHost = 64
		t.IdleConnTimeout = stall / 2
		t.ForceAttemptHTTP2 = false // its one connection would carry every body
	})
}

// moving is a connection each of whose reads and writes must move something in
// time.
type moving struct {
	net.Conn
	stall time.Duration
}

func (m *moving) Read(p []byte) (int, error) {
	if err := m.SetReadDeadline(time.Now().Add(m.stall)); err != nil {
		return 0, err
	}
	return m.Conn.Read(p)
}

func (m *moving) Write(p []byte) (int, error) {
	// A request that is still being written has its answer ahead of it.
	if err := m.SetDeadline(time.Now().Add(m.stall)); err != nil {
		return 0, err
	}
	return m.Conn.Write(p)
}
