package image

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/berth-dev/berth/sandbox"
)

// TestPrivateRegistry: an image that asks for a login is built with the one that
// the request brings, which no other registry is shown and no error tells.
func TestPrivateRegistry(t *testing.T) {
	needTools(t)
	const user, password = "builder", "hunter2-and-more"
	serve := func(private bool) (host string, seen *atomic.Bool) {
		seen = new(atomic.Bool)
		next := registry.New(registry.Logger(discardLog()))
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "" {
				seen.Store(true)
			}
			if u, p, _ := r.BasicAuth(); private && (u != user || p != password) {
				w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		}))
		t.Cleanup(server.Close)
		return strings.TrimPrefix(server.URL, "http://"), seen
	}
	push := func(host string, o ...remote.Option) string {
		ref, err := name.ParseReference(host + "/team/app:1")
		if err == nil {
			err = remote.Write(ref, sample(t), o...)
		}
		if err != nil {
			t.Fatal(err)
		}
		return "oci:" + ref.String()
	}
	private, _ := serve(true)
	public, seen := serve(false)
	from := push(private, remote.WithAuth(authn.FromConfig(authn.AuthConfig{Username: user, Password: password})))
	other := push(public)
	s := openStore(t, t.TempDir())
	build := func(from string, login *sandbox.Login) error {
		_, err := s.Build(t.Context(), sandbox.BuildRequest{Name: "app", From: from, Login: login}, nil)
		return err
	}
	wantRefusal(t, "without a login", build(from, nil), sandbox.Forbidden)
	wrong := build(from, &sandbox.Login{Username: user, Password: "not-this-one"})
	wantRefusal(t, "with another password", wrong, sandbox.Forbidden)
	if text := fmt.Sprintf("%+v %s", wrong, errors.Unwrap(wrong)); strings.Contains(text, "not-this-one") {
		t.Errorf("the password is told: %s", text)
	}
	login := &sandbox.Login{Registry: private, Username: user, Password: password}
	if err := build(from, login); err != nil {
		t.Error(err)
	}
	if err := build(other, login); err != nil {
		t.Error(err)
	}
	if seen.Load() {
		t.Error("another registry was shown the login")
	}
	if text := fmt.Sprintf("%v %+v %#v", *login, login, login); strings.Contains(text, password) {
		t.Errorf("it prints as %s", text)
	}
}
