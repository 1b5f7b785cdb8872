package e2b

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// loginService stands in for that of a region: every host leads to it.
func loginService(t *testing.T, h http.HandlerFunc) *awsLogin {
	t.Helper()
	s := httptest.NewTLSServer(h)
	t.Cleanup(s.Close)
	a := newAWSLogin()
	a.now = func() time.Time { return time.Unix(1_800_000_000, 0) }
	tr := s.Client().Transport.(*http.Transport)
	tr.TLSClientConfig.InsecureSkipVerify = true // the name is the region's
	tr.DialContext = func(ctx context.Context, _, address string) (net.Conn, error) {
		if address != "api.ecr.eu-west-1.example.com:443" {
			return nil, fmt.Errorf("%s was dialled", address)
		}
		return new(net.Dialer).DialContext(ctx, "tcp", s.Listener.Addr().String())
	}
	a.client.Transport = tr
	return a
}

const privateImage = "123456789012.dkr.ecr.eu-west-1.example.com/team/app:1"

func TestAWSLogin(t *testing.T) {
	a := loginService(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		auth := r.Header.Get("Authorization")
		if r.Method != "POST" || string(body) != "{}" || r.Header.Get("X-Amz-Target") != awsLoginTarget || r.Host != "api.ecr.eu-west-1.example.com" ||
			!strings.HasPrefix(auth, "AWS4-HMAC-SHA256 Credential=AKIA123/20270115/eu-west-1/ecr/aws4_request, SignedHeaders=") || strings.Contains(auth, "hush") {
			t.Errorf("%s %s %q %v", r.Method, r.Host, body, r.Header)
		}
		fmt.Fprintf(w, `{"authorizationData":[{"authorizationToken":%q,"expiresAt":1.8e9}]}`, base64.StdEncoding.EncodeToString([]byte("AWS:pass:word")))
	})
	got, err := a.plain(t.Context(), &registry{Type: "aws", AWSKeyID: "AKIA123", AWSKey: "hush", AWSRegion: "eu-west-1"}, privateImage)
	if err != nil {
		t.Fatal(err)
	}
	login, err := got.login()
	if err != nil || login.Username != "AWS" || string([]byte(login.Password)) != "pass:word" {
		t.Errorf("%+v, %v", login, err)
	}
}

func TestAWSLoginsThatFail(t *testing.T) {
	good := registry{Type: "aws", AWSKeyID: "AKIA123", AWSKey: "hush", AWSRegion: "eu-west-1"}
	for name, c := range map[string]struct {
		image  string
		change func(*registry)
		answer string
		status int // of the service; 0: it is not to be asked
		want   int
	}{
		"another registry": {image: "registry.example.com/team/app", want: 400},
		"no account":       {image: "1.dkr.ecr.eu-west-1.example.com/app", want: 400},
		"an address":       {image: "123456789012.dkr.ecr.eu-west-1.example.com@127.0.0.1/app", want: 400},
		"another region":   {image: privateImage, change: func(r *registry) { r.AWSRegion = "us-east-1" }, want: 400},
		"no key":           {image: privateImage, change: func(r *registry) { r.AWSKey = "" }, want: 400},
		"refused":          {image: privateImage, status: 400, answer: `{"__type":"UnrecognizedClientException","message":"The security token is invalid."}`, want: 400},
		"broken":           {image: privateImage, status: 500, answer: "oops", want: 502},
		"a redirect":       {image: privateImage, status: 302, answer: "{}", want: 502},
		"nothing":          {image: privateImage, status: 200, answer: `{"authorizationData":[]}`, want: 502},
		"no JSON":          {image: privateImage, status: 200, answer: "<html>", want: 502},
		"no login":         {image: privateImage, status: 200, answer: `{"authorizationData":[{"authorizationToken":"AAAA"}]}`, want: 502},
	} {
		asked := false
		a := loginService(t, func(w http.ResponseWriter, _ *http.Request) {
			asked = true
			w.Header().Set("Location", "https://127.0.0.1/")
			w.WriteHeader(c.status)
			io.WriteString(w, c.answer)
		})
		r := good
		if c.change != nil {
			c.change(&r)
		}
		_, err := a.plain(t.Context(), &r, c.image)
		var f *fault
		if !errors.As(err, &f) || f.status != c.want || asked != (c.status != 0) || strings.Contains(fmt.Sprint(err, f.err), "hush") {
			t.Errorf("%s: %v, asked %v", name, err, asked)
		}
	}
}
