package api_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/berth-dev/berth/client"
	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
	"github.com/berth-dev/berth/test/served"
)

func TestPolicies(t *testing.T) {
	v := visit(t)
	box := v.create(`{"policy":{"profile":"allow-list","allow":[{"domains":["example.com"]}]}}`)
	id := sandbox.ID(strings.TrimPrefix(box, "/v1/sandboxes/"))
	if p := into[sandbox.Policy](t, v.do("GET", box+"/policy", "", 200)); p.Profile != sandbox.ProfileAllow || p.Allow[0].Domains[0] != "example.com" {
		t.Errorf("%+v", p)
	}
	set := into[wire.PolicySet](t, v.do("PUT", box+"/policy", `{"profile":"allow-list","allow":[{"domains":["*.example.com"]},{"name":"api","domains":["api.example.com"],"ports":["443"]}],"deny":[{"cidrs":["93.184.216.0/24"],"protocol":"tcp"}]}`, 200))
	if len(set.Warnings) != 1 || len(set.Policy.Allow) != 2 {
		t.Errorf("%+v", set)
	}
	if got, ok := v.s.Gateway.Of(id); !ok || !reflect.DeepEqual(got, set.Policy) {
		t.Errorf("in force is %+v, want %+v", got, set.Policy)
	}
	if s := into[sandbox.Sandbox](t, v.do("GET", box, "", 200)); s.Policy == nil || !reflect.DeepEqual(*s.Policy, set.Policy) {
		t.Errorf("the sandbox has %+v", s.Policy)
	}
	for body, status := range map[string]int{
		`{"profile":"open","allow":[{"name":"refused","domains":["a.io"]}]}`: 403,
		`{"profile":"shut"}`:                                       400,
		`{"profile":"open","alow":[]}`:                             400,
		`{"profile":"open","deny":[{"domains":["exаmple.com"]}]}`:  400,
		`{"profile":"none","allow":[{"domains":["example.com"]}]}`: 400,
		``: 400,
	} {
		v.do("PUT", box+"/policy", body, status)
	}
	v.do("GET", "/v1/sandboxes/aaaaaaaaaaaaaaaaaaaa/policy", "", 404)
	if got, _ := v.s.Gateway.Of(id); !reflect.DeepEqual(got, set.Policy) {
		t.Errorf("a refused policy came into force: %+v", got)
	}
}

// TestPolicySchema holds the schema to what the server takes and refuses.
func TestPolicySchema(t *testing.T) {
	v := visit(t)
	resp, err := http.Get(v.s.URL + "/v1/policy.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	doc, err := jsonschema.UnmarshalJSON(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("policy.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("policy.json")
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		`{"profile":"open"}`: true,
		`{"profile":"allow-list","allow":[{"name":"n","domains":["*.example.com"],"ports":["443","1-9"],"protocol":"tcp","inspect":true,"methods":["GET"],"paths":["/a/*"]}],"deny":[{"cidrs":["::/0"]}]}`: true,
		`{"profile":"open","inject":[{"host":"api.example.com","secret":"k","header":{"Authorization":"Bearer ${secret}"},"mask":true,"methods":["POST"],"paths":["/v1/*"]}]}`:                             true,
		`{"profile":"open","inject":[{"host":"api.example.com","handler":{"name":"h"}}]}`:                                                                                                                  true,
		`{"profile":"open","inject":[{"host":"api.example.com","secret":"k","basic":{"user":"u","password":"${secret}"},"query":{"k":"${secret}"},"body":{"BODYMARKER":"${secret}"}}]}`:                    true,
		`{"profile":"open","divert":"door"}`: true,
		`{"profile":"open","divert":"A/B"}`:  false,
		`{}`:                                 false,
		`{"profile":"shut"}`:                 false,
		`{"profile":"open","x":1}`:           false,
		`{"profile":"open","deny":[{"domains":["Example.com"]}]}`:       false,
		`{"profile":"open","deny":[{"ports":[443]}]}`:                   false,
		`{"profile":"open","deny":[{"port":"443"}]}`:                    false,
		`{"profile":"open","inject":[{"secret":"k"}]}`:                  false,
		`{"profile":"open","inject":[{"host":"a.io","value":"plain"}]}`: false,
	} {
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(value); (err == nil) != want {
			t.Errorf("%s: the schema says %v, want %v", text, err, want)
		}
		if _, err := sandbox.ParsePolicy([]byte(text)); (err == nil) != want {
			t.Errorf("%s: the server says %v, want %v", text, err, want)
		}
	}
}

func TestAudit(t *testing.T) {
	v := visit(t)
	box := v.create(`{}`)
	id := sandbox.ID(strings.TrimPrefix(box, "/v1/sandboxes/"))
	note := func(id sandbox.ID, host string, verdict sandbox.Verdict) {
		v.s.Audit.Note(sandbox.AuditEntry{Sandbox: id, Account: sandbox.MainAccount, Kind: sandbox.AuditConnection, Verdict: verdict, Protocol: "tcp",
			Host: host, Address: "93.184.216.34", Port: 443, Sent: 5, Received: 7, Credential: "k"})
	}
	note(id, "one.example", sandbox.VerdictAllowed)
	note("bbbbbbbbbbbbbbbbbbbb", "two.example", sandbox.VerdictDenied)
	note(id, "three.example", sandbox.VerdictDenied)

	// The stream has them all, and those to come.
	r := v.s.Request(t, "GET", "/v1/audit", "")
	r.Header.Set("Accept", wire.TypeSSE)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	next := func() (e sandbox.AuditEntry) {
		t.Helper()
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				if err := json.Unmarshal([]byte(data), &e); err != nil {
					t.Fatal(err)
				}
				return e
			}
		}
		t.Fatal(lines.Err(), io.EOF)
		return e
	}
	for _, want := range []string{"one.example", "two.example", "three.example"} {
		if e := next(); e.Host != want {
			t.Errorf("the stream has %+v, want %s", e, want)
		}
	}
	note(id, "four.example", sandbox.VerdictAllowed)
	if e := next(); e.Host != "four.example" || e.Cursor == "" {
		t.Errorf("the stream goes on with %+v", e)
	}
	for query, want := range map[string]int{"": 4, "denied=true": 2, "sandbox=" + string(id): 3, "kind=dns": 0, "kind=dns&kind=connection": 4,
		"sandbox=bbbbbbbbbbbbbbbbbbbb&denied=true": 1, "account=main": 4, "account=other": 0, "limit=2": 2} {
		if page := into[sandbox.AuditPage](t, v.do("GET", "/v1/audit?"+query, "", 200)); len(page.Entries) != want || page.Next == "" {
			t.Errorf("%s: %d entries, want %d", query, len(page.Entries), want)
		}
	}
	for _, query := range []string{"kind=x", "after=x", "since=yesterday", "limit=0", "colour=red", "sandbox=no!"} {
		v.do("GET", "/v1/audit?"+query, "", 400)
	}
	entries, err := client.New(v.s.URL, served.Key).FollowAudit(t.Context(), sandbox.AuditQuery{Sandbox: string(id), Denied: true})
	if err != nil {
		t.Fatal(err)
	}
	defer entries.Close()
	if e, err := entries.Recv(); err != nil || e.Host != "three.example" || e.Credential != "k" {
		t.Errorf("the client has %+v, %v", e, err)
	}
}
