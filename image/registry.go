package image

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/berth-dev/berth/sandbox"
)

// stallLimit is how long a registry may be silent, before or within an answer.
const stallLimit = 90 * time.Second

// reference is an image in a registry, read with the login of the request, else
// with those that the server's user has logged in with, else without credentials.
type reference struct {
	ref  name.Reference
	auth authn.Authenticator // nil: the server's own
	caps caps
}

func parseReference(s string, login *sandbox.Login, c caps) (source, error) {
	ref, err := name.ParseReference(s)
	if err != nil {
		return nil, invalid("write it as NAME, NAME:TAG, HOST/NAME:TAG or HOST/NAME@sha256:…", "image reference %.200q: %w", s, err)
	}
	r := reference{ref: ref, caps: c}
	if login != nil && (login.Registry == "" || login.Registry == ref.Context().RegistryStr()) {
		r.auth = authn.FromConfig(authn.AuthConfig{Username: login.Username, Password: string(login.Password)})
	}
	return r, nil
}

// credentials are those that the registry is shown.
func (r reference) credentials() remote.Option {
	if r.auth != nil {
		return remote.WithAuth(r.auth)
	}
	return remote.WithAuthFromKeychain(authn.DefaultKeychain)
}

func (r reference) resolve(ctx context.Context) (root, error) {
	img, err := remote.Image(r.ref,
		remote.WithContext(ctx),
		r.credentials(),
		remote.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}),
		remote.WithTransport(impatient{remote.DefaultTransport}),
	)
	if err != nil {
		return nil, r.explain(ctx, err)
	}
	manifest, err := img.Manifest()
	if err != nil {
		return nil, r.explain(ctx, err)
	}
	if manifest.Config.Size < 0 || manifest.Config.Size > maxDocument {
		return nil, notImage("its configuration has %d bytes", manifest.Config.Size)
	}
	config, err := img.RawConfigFile()
	if err != nil {
		return nil, r.explain(ctx, err)
	}
	found, err := img.Layers()
	if err != nil {
		return nil, r.explain(ctx, err)
	}
	layers := make([]layer, len(found))
	for i, l := range found {
		layers[i] = layer{size: manifest.Layers[i].Size, open: func() (io.ReadCloser, error) {
			rc, err := l.Compressed()
			if err != nil {
				return nil, r.explain(ctx, err)
			}
			return explained{rc, ctx, r}, nil
		}}
	}
	return newLayered(config, layers, r.caps, func() error { return nil })
}

// explain gives a registry's refusal a kind and a remedy.
func (r reference) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	e := &sandbox.Error{Kind: sandbox.Invalid, Err: err, Hint: "what the registry gave is damaged, or no Linux image"}
	var refused *transport.Error
	var network *net.OpError
	var request *url.Error
	switch {
	case errors.As(err, &refused):
		e.Kind, e.Hint = explainStatus(refused.StatusCode)
	case errors.Is(err, errStalled), errors.As(err, &network), errors.As(err, &request):
		e.Kind, e.Hint = sandbox.Unavailable, "the registry cannot be reached from this machine: check the name, the network and the proxy settings"
	}
	return e
}

// explained explains the failure of a layer's transfer.
type explained struct {
	io.ReadCloser
	ctx context.Context
	ref reference
}

func (e explained) Read(p []byte) (int, error) {
	n, err := e.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = e.ref.explain(e.ctx, err)
	}
	return n, err
}

func explainStatus(code int) (sandbox.Kind, string) {
	switch {
	case code == http.StatusNotFound:
		return sandbox.NotFound, "the registry has no such image: check its name and tag"
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return sandbox.Forbidden, "the registry does not show this image: check its name, the login of the build, or log in on the server with an OCI client (~/.docker/config.json)"
	case code == http.StatusTooManyRequests, code >= 500:
		return sandbox.Unavailable, "the registry refuses for now: try again later, or log in on the server for a higher limit"
	}
	return sandbox.Invalid, "the registry does not take this reference"
}

var errStalled = errors.New("the registry has gone silent")

// impatient ends a request whose answer does not come or does not go on.
type impatient struct{ next http.RoundTripper }

func (i impatient) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	clock := time.AfterFunc(stallLimit, func() { cancel(errStalled) })
	resp, err := i.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		clock.Stop()
		if cause := context.Cause(ctx); errors.Is(cause, errStalled) {
			err = cause
		}
		cancel(nil)
		return nil, err
	}
	resp.Body = &impatientBody{resp.Body, ctx, clock, cancel}
	return resp, nil
}

type impatientBody struct {
	io.ReadCloser
	ctx    context.Context
	clock  *time.Timer
	cancel context.CancelCauseFunc
}

func (b *impatientBody) Read(p []byte) (int, error) {
	b.clock.Reset(stallLimit)
	n, err := b.ReadCloser.Read(p)
	b.clock.Stop() // the reader may take its time
	if err != nil && errors.Is(context.Cause(b.ctx), errStalled) {
		err = errStalled
	}
	return n, err
}

func (b *impatientBody) Close() error {
	b.clock.Stop()
	err := b.ReadCloser.Close()
	b.cancel(nil)
	return err
}
