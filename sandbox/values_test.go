package sandbox

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func text(s string) *HeaderText { t := HeaderText(s); return &t }

func TestValuesCheck(t *testing.T) {
	own := map[string]*HeaderText{"X-Key": text("k"), "X-Kept": nil, "X-Empty": text(""), "X-Mark": text("${secret}\tas it stands")}
	for _, r := range []Inject{
		{Host: "api.example.com", Values: own},
		{Host: "*.com", Except: []string{"api.example.com", "*.example.org.com"}, Values: own},
		{Host: "a.b", Values: own, Secret: "k", Header: map[string]string{"Authorization": "${secret}"}},
		{Host: "a.b", Values: map[string]*HeaderText{"X": text("long enough")}, Mask: true},
		{Host: "a.b", Values: own, Handler: &Handler{Name: "audit"}},
	} {
		if err := r.Check(); err != nil {
			t.Errorf("%+v: %v", r, err)
		}
	}
	for what, r := range map[string]Inject{
		"a secret for nothing":       {Host: "a.b", Values: own, Secret: "k"},
		"a line break":               {Host: "a.b", Values: map[string]*HeaderText{"X": text("hush\r\nY: z")}},
		"a header that frames":       {Host: "a.b", Values: map[string]*HeaderText{"Content-Length": text("hush")}},
		"twice":                      {Host: "a.b", Values: map[string]*HeaderText{"x": text("hush"), "X": text("hush")}},
		"twice, once by a template":  {Host: "a.b", Values: map[string]*HeaderText{"x": text("hush")}, Secret: "k", Header: map[string]string{"X": "${secret}"}},
		"twice, once by basic":       {Host: "a.b", Values: map[string]*HeaderText{"authorization": text("hush")}, Secret: "k", Basic: &InjectBasic{Password: "${secret}"}},
		"too long":                   {Host: "a.b", Values: map[string]*HeaderText{"X": text(strings.Repeat("hush", 2000))}},
		"too short to be masked":     {Host: "a.b", Values: map[string]*HeaderText{"X": text("hush")}, Mask: true},
		"an exception of elsewhere":  {Host: "*.example.com", Except: []string{"example.org"}, Values: own},
		"an exception of everything": {Host: "*.example.com", Except: []string{"*.example.com"}, Values: own},
		"an exception of one name":   {Host: "api.example.com", Except: []string{"api.example.com"}, Values: own},
		"every name":                 {Host: "*", Values: own},
		"an address":                 {Host: "*.4", Values: own},
	} {
		err := r.Check()
		if KindOf(err) != Invalid {
			t.Errorf("%s: %v", what, err)
		} else if strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: the error holds the value: %v", what, err)
		}
	}
	many := Policy{Profile: ProfileOpen}
	for i := range MaxInjects {
		many.Inject = append(many.Inject, Inject{Host: fmt.Sprintf("h%d.example.com", i),
			Values: map[string]*HeaderText{"A": text(strings.Repeat("a", MaxInjectValue)), "B": text(strings.Repeat("b", MaxInjectValue))}})
	}
	if err := many.Check(); KindOf(err) != Invalid || HintOf(err) == "" {
		t.Errorf("%d KiB of values: %v", MaxInjects*2*MaxInjectValue>>10, err)
	}
	build := BuildRequest{Name: "x", From: "oci:x", Policy: &Policy{Profile: ProfileOpen, Inject: []Inject{{Host: "a.b", Values: own}}}}
	if err := build.Check(); KindOf(err) != Invalid {
		t.Errorf("a template with values: %v", err)
	}
}

func TestAPolicyIsPartedFromItsValues(t *testing.T) {
	p, err := ParsePolicy([]byte(`{"profile":"open","inject":[
		{"host":"*.example.com","except":["api.example.com"],"values":{"X-Key":"hush"}},
		{"host":"api.example.com","paths":["/v1/*"],"values":{"X-Key":"hush too","X-Kept":null}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	bare, values := p.Detach()
	if len(values) != 3 || *values[0].Text != "hush" || values[1].Header != "X-Kept" || values[1].Text != nil || *values[2].Text != "hush too" {
		t.Fatalf("%d values", len(values))
	}
	if bare.ValueSet == "" || !bare.HasValues() || p.ValueSet != "" || *p.Inject[0].Values["X-Key"] != "hush" {
		t.Error("the policy is not whole, or the one that it was made of has changed")
	}
	b, err := json.Marshal(bare)
	if err != nil || strings.Contains(string(b), "hush") || strings.Contains(string(b), bare.ValueSet) || !strings.Contains(string(b), `"X-Key":null`) {
		t.Errorf("%s, %v", b, err)
	}
	if printed := fmt.Sprintf("%v %+v %#v %s", p, p, *p.Inject[0].Values["X-Key"], *p.Inject[0].Values["X-Key"]); strings.Contains(printed, "hush") {
		t.Errorf("it prints %s", printed)
	}
	if again, more := bare.Detach(); len(more) != 3 || again.ValueSet == bare.ValueSet {
		t.Errorf("%d values, %s", len(more), again.ValueSet)
	}
	if bare, values := (&Policy{Profile: ProfileOpen, ValueSet: "x"}).Detach(); bare.ValueSet != "" || values != nil {
		t.Errorf("%+v, %v", bare, values)
	}
	keys := map[string]bool{}
	for _, v := range values {
		keys[v.Key] = true
	}
	if len(keys) != 3 || values[0].Key != p.Inject[0].ValueKey("x-key") {
		t.Errorf("keys %v", keys)
	}
}

func TestMatchesHost(t *testing.T) {
	r := Inject{Host: "*.example.com", Except: []string{"api.example.com", "*.dev.example.com"}}
	for name, want := range map[string]bool{
		"www.example.com": true, "example.com": false, "api.example.com": false, "a.api.example.com": true,
		"dev.example.com": true, "x.dev.example.com": false, "x.y.dev.example.com": false, "example.org": false,
	} {
		if r.MatchesHost(name) != want {
			t.Errorf("%s: %v", name, !want)
		}
	}
}
