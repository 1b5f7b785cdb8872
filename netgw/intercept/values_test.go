package intercept

import (
	"net/http"
	"strings"
	"testing"

	"github.com/berth-dev/berth/sandbox"
)

// give puts a policy of these rules into force, its values put away.
func (r *rig) give(rules ...sandbox.Inject) {
	r.t.Helper()
	p := sandbox.Policy{Profile: sandbox.ProfileOpen, Inject: rules}
	must(r.t, p.Check())
	bare, values := p.Detach()
	r.mu.Lock()
	before := r.policy.ValueSet
	r.mu.Unlock()
	must(r.t, r.p.Keep(r.t.Context(), r.id, bare.ValueSet, before, values))
	r.set(func() { r.policy = *bare })
	must(r.t, r.p.Prune(r.t.Context(), r.id, bare.ValueSet))
}

func own(header, text string) map[string]*sandbox.HeaderText {
	if text == "" {
		return map[string]*sandbox.HeaderText{header: nil}
	}
	t := sandbox.HeaderText(text)
	return map[string]*sandbox.HeaderText{header: &t}
}

func TestValuesOfThePolicy(t *testing.T) {
	const value = "Bearer k-own-123"
	r := newRig(t, http.HandlerFunc(echo))
	r.give(sandbox.Inject{Host: "*.example.com", Values: own("authorization", value), Match: sandbox.Match{Paths: []string{"/v1/*"}}})
	for _, http2 := range []bool{false, true} {
		req := newRequest(t, "POST", "https://"+host+"/v1/x", strings.NewReader("hello"))
		req.Header.Set("Authorization", "Bearer the client's own")
		resp, _ := r.request(r.client(http2), req)
		if got := resp.Header.Get("X-Auth"); got != value {
			t.Errorf("the server saw %q", got)
		}
	}
	if e := r.last(2); e.Credential != "authorization" || e.Verdict != sandbox.VerdictAllowed {
		t.Errorf("%+v", e)
	}
	req := newRequest(t, "GET", "https://"+host+"/v2/x", nil)
	req.Header.Set("Authorization", "mine")
	if resp, _ := r.request(r.client(false), req); resp.Header.Get("X-Auth") != "mine" {
		t.Errorf("a path that no rule is about: %q", resp.Header.Get("X-Auth"))
	}
	// The same rule again, its value kept; one of the closer name beside it.
	r.give(sandbox.Inject{Host: "*.example.com", Values: own("Authorization", ""), Match: sandbox.Match{Paths: []string{"/v1/*"}}})
	if resp, _ := r.get("/v1/x"); resp.Header.Get("X-Auth") != value {
		t.Errorf("kept: %q", resp.Header.Get("X-Auth"))
	}
	r.give(sandbox.Inject{Host: "*.example.com", Except: []string{host}, Values: own("Authorization", "far")},
		sandbox.Inject{Host: host, Values: own("Authorization", "near")})
	if resp, _ := r.get("/v1/x"); resp.Header.Get("X-Auth") != "near" {
		t.Errorf("of two rules: %q", resp.Header.Get("X-Auth"))
	}
	r.give(sandbox.Inject{Host: "*.example.com", Except: []string{host}, Values: own("Authorization", "far")})
	if resp, _ := r.get("/v1/x"); resp.Header.Get("X-Auth") != "" {
		t.Errorf("an exception: %q", resp.Header.Get("X-Auth"))
	}
}

// TestValuesThatAreGoneRefuse has a policy without its values, as no order of steps
// may leave it: the request does not pass without them.
func TestValuesThatAreGoneRefuse(t *testing.T) {
	r := newRig(t, http.HandlerFunc(echo))
	r.give(sandbox.Inject{Host: host, Values: own("Authorization", "k-own-123"), Mask: true})
	if resp, body := r.get("/repeat"); resp.Header.Get("X-Auth") != "*********" || strings.Contains(body, "k-own-123") {
		t.Errorf("%v %q", resp.Header, body)
	}
	// The policy changes while a request is on its way: it goes on with the new one.
	dials := r.dials()
	old := r.policy
	r.give(sandbox.Inject{Host: host, Values: own("Authorization", "k-new-456")})
	late := &request{s: &session{p: r.p, flow: &Flow{Sandbox: r.id, Host: host, TLS: true, Policy: func() sandbox.Policy { return r.policy }}},
		in: newRequest(t, "GET", "https://"+host+"/x", nil), policy: old}
	if c, no := late.credentials(); no != nil || c.header["Authorization"] != "k-new-456" {
		t.Errorf("%+v", no)
	}
	must(t, r.p.Forget(t.Context(), r.id))
	resp, _ := r.get("/x")
	if resp.StatusCode != http.StatusBadGateway || r.dials() != dials {
		t.Errorf("%d, dialled %d times", resp.StatusCode, r.dials()-dials)
	}
	if e := r.last(2); e.Verdict != sandbox.VerdictDenied || strings.Contains(e.Reason, "k-new-456") {
		t.Errorf("%+v", e)
	}
}
