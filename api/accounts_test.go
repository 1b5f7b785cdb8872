package api_test

import (
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/account"
	"github.com/berth-dev/berth/sandbox"
)

// temporary makes a temporary account, and gives its key and the path of its claim.
func (v *visitor) temporary() (made sandbox.TemporaryAccount, who *strangers, claim string) {
	v.t.Helper()
	r := v.s.Request(v.t, "POST", "/v1/accounts/temporary", "")
	r.Header.Del("Authorization")
	_, b := v.send(r, 201)
	made = into[sandbox.TemporaryAccount](v.t, b)
	u, err := url.Parse(made.ClaimURL)
	if err != nil {
		v.t.Fatal(err)
	}
	return made, &strangers{v, made.Key.Secret}, u.Path
}

// furnish gives an account one of each thing that there is.
func (s *strangers) furnish(status map[string]int) {
	s.t.Helper()
	for _, ask := range []struct{ method, path, body string }{
		{"POST", "/v1/sandboxes", `{"name":"box"}`}, {"POST", "/v1/webhooks", `{"url":"http://127.0.0.1:9/"}`}, {"POST", "/v1/keys", `{}`},
		{"PUT", "/v1/secrets/token", `{"value":"abc"}`}, {"POST", "/v1/domains", `{"name":"x.example.org","sandbox":"box","port":80}`},
	} {
		got, body := s.ask(ask.method, ask.path, ask.body)
		if want, has := status[ask.path]; has && want != got || !has && got/100 != 2 {
			s.t.Errorf("%s %s: %d %s", ask.method, ask.path, got, body)
		}
	}
}

// mentions are the keys of the store that an account's id is a part of, but for
// what is kept of accounts that are gone.
func (v *visitor) mentions(id string) (keys []string) {
	v.t.Helper()
	for after := ""; ; {
		entries, err := v.s.Records.List(v.t.Context(), "", after, 0)
		if err != nil {
			v.t.Fatal(err)
		}
		for _, e := range entries {
			after = e.Key
			kept := strings.HasPrefix(e.Key, "event/") || strings.HasPrefix(e.Key, "meter/") || strings.HasPrefix(e.Key, "audit/")
			if !kept && strings.Contains(e.Key+string(e.Value), id) {
				keys = append(keys, e.Key)
			}
		}
		if len(entries) < 1000 {
			return keys
		}
	}
}

// TestUnclaimedAccountLeavesNothing lets the time of a furnished account pass.
func TestUnclaimedAccountLeavesNothing(t *testing.T) {
	v := visit(t)
	v.s.Accounts.SetTerms(account.Terms{Temporary: &account.Temporary{Lifetime: time.Hour}})
	made, who, _ := v.temporary()
	who.furnish(nil)
	if len(v.mentions(made.Account.ID)) < 8 {
		t.Errorf("furnished, it has %q", v.mentions(made.Account.ID))
	}
	v.s.PassTime(time.Hour)
	if status, got := who.ask("GET", "/v1/sandboxes", ""); status != 401 {
		t.Errorf("after its time: %d %s", status, got)
	}
	v.do("POST", "/v1/accounts", `{"id":"other"}`, 201)
	v.do("DELETE", "/v1/accounts/other", "", 204) // has it looked for what is to go
	v.do("GET", "/v1/accounts/"+made.Account.ID, "", 404)
	if left := v.mentions(made.Account.ID); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	if all := into[sandbox.Page](t, v.do("GET", "/v1/sandboxes", "", 200)); len(all.Sandboxes) > 0 {
		t.Errorf("left: %+v", all)
	}
}

// TestRemovedAccountLeavesItsMark removes a furnished account with a stream open.
func TestRemovedAccountLeavesItsMark(t *testing.T) {
	v := visit(t)
	who := &strangers{v, v.tenant("teamof")}
	who.furnish(nil)
	r := v.s.Request(t, "GET", "/v1/events", "")
	r.Header.Set("Authorization", "Bearer "+who.key)
	r.Header.Set("Accept", "application/x-ndjson")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	v.do("DELETE", "/v1/accounts/teamof", "", 204)
	if _, err := io.Copy(io.Discard, resp.Body); err == nil {
		t.Error("the stream ended as if all had been told")
	}
	if left := v.mentions("teamof"); len(left) != 1 || left[0] != "account/teamof" {
		t.Errorf("left: %q", left)
	}
	v.do("POST", "/v1/accounts", `{"id":"teamof"}`, 409)
}

func TestClaimPage(t *testing.T) {
	v := visit(t)
	made, who, claim := v.temporary()
	who.furnish(nil)
	page := func(method, path string, headers map[string]string, status int) (http.Header, string) {
		t.Helper()
		r := v.s.Request(t, method, path, "")
		r.Header.Del("Authorization")
		for name, value := range headers {
			r.Header.Set(name, value)
		}
		h, b := v.send(r, status)
		return h, string(b)
	}
	h, text := page("GET", claim, map[string]string{"Sec-Fetch-Site": "cross-site"}, 200) // from a mail, say
	if strings.Count(text, "<button") != 1 || !strings.Contains(text, made.Account.ID) || strings.Contains(text, "<script") {
		t.Error(text)
	}
	for name, part := range map[string]string{"Content-Security-Policy": "frame-ancestors 'none'", "X-Frame-Options": "DENY", "Cache-Control": "no-store"} {
		if !strings.Contains(h.Get(name), part) {
			t.Errorf("%s: %q", name, h.Get(name))
		}
	}
	page("GET", claim, nil, 200) // looking changes nothing
	for _, evil := range []map[string]string{{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}} {
		page("POST", claim, evil, 403)
	}
	for _, bad := range []string{"/claim/" + strings.Repeat("0", 40), "/claim/x", "/claim/" + strings.Repeat("f", 41)} {
		page("GET", bad, nil, 404)
		page("POST", bad, nil, 404)
	}
	_, text = page("POST", claim, map[string]string{"Origin": v.s.URL, "Sec-Fetch-Site": "same-origin"}, 200)
	key := regexp.MustCompile(`berth_[0-9a-f]{40}`).FindString(text)
	for name, k := range map[string]string{"the person's": key, "the agent's": made.Key.Secret} {
		one := &strangers{v, k}
		if status, got := one.ask("GET", "/v1/sandboxes/box", ""); status != 200 {
			t.Errorf("%s key: %d %s", name, status, got)
		}
		if _, got := one.ask("GET", "/v1/account", ""); !strings.Contains(got, `"state":"active"`) || strings.Contains(got, "expires") {
			t.Errorf("%s key: %s", name, got)
		}
	}
	page("GET", claim, nil, 404)
	page("POST", claim, map[string]string{"Accept": "application/json"}, 404)
	for _, secret := range []string{strings.TrimPrefix(claim, "/claim/"), key, made.Key.Secret, strings.TrimPrefix(key, "berth_")} {
		if strings.Contains(v.s.Log.String(), secret) {
			t.Errorf("the log holds %s", secret)
		}
	}
	_, _, second := v.temporary()
	_, text = page("POST", second, map[string]string{"Accept": "application/json"}, 200)
	if into[sandbox.NewKey](t, []byte(text)).Secret == "" {
		t.Error(text)
	}
}

// TestReadKeyCannotType opens a terminal's WebSocket with a key that may read.
func TestReadKeyCannotType(t *testing.T) {
	v := visit(t)
	owner := &strangers{v, v.tenant("a")}
	if status, got := owner.ask("POST", "/v1/sandboxes", `{"name":"box"}`); status != 201 {
		t.Fatal(status, got)
	}
	_, got := owner.ask("POST", "/v1/sandboxes/box/terminals", `{}`)
	id := into[sandbox.Terminal](t, []byte(got)).ID
	reader := &strangers{v, v.tenant("a", sandbox.ScopeRead)}
	if status, got := reader.ask("GET", "/v1/sandboxes/box/terminals/"+id, ""); status != 200 {
		t.Errorf("%d %s", status, got)
	}
	if status, got := reader.ask("GET", "/v1/sandboxes/box/terminals/"+id+"#berth.terminal.v1", ""); status != 403 {
		t.Errorf("as a WebSocket: %d %s", status, got)
	}
}
