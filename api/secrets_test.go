package api_test

import (
	"strings"
	"testing"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

func TestSecretsGoInAndDoNotComeOut(t *testing.T) {
	v := visit(t)
	const value = "s3cr3t-of-the-test"
	answers := string(v.do("PUT", "/v1/secrets/github", `{"value":"`+value+`"}`, 200))
	s := into[sandbox.Secret](t, []byte(answers))
	if s.Name != "github" || s.Version != 1 || s.Updated.IsZero() {
		t.Errorf("%+v", s)
	}
	answers += string(v.do("PUT", "/v1/secrets/github", `{"base64":"AAECAwQ="}`, 200))
	b := v.do("GET", "/v1/secrets", "", 200)
	if all := into[wire.Secrets](t, b).Secrets; len(all) != 1 || all[0].Version != 2 {
		t.Errorf("%s", b)
	}
	answers += string(b) + string(v.do("GET", "/v1/secrets/github", "", 200))
	for _, bad := range []string{`{}`, `{"value":""}`, `{"value":"` + value + `","base64":"AA=="}`, `{"value":["` + value + `"]}`, `{"` + value + `":1}`, value, `{"value":"` + value} {
		answers += string(v.do("PUT", "/v1/secrets/github", bad, 400))
	}
	answers += string(v.do("PUT", "/v1/secrets/a%2Fb", `{"value":"x"}`, 400))
	v.do("DELETE", "/v1/secrets/github", "", 204)
	v.do("DELETE", "/v1/secrets/github", "", 404)
	answers += string(v.do("GET", "/v1/secrets/github", "", 404))
	if strings.Contains(answers, value) {
		t.Errorf("an answer holds the value: %s", answers)
	}
	if strings.Contains(v.s.Log.String(), value) {
		t.Error("the log holds the value")
	}
}

func TestGrantsOfASandbox(t *testing.T) {
	v := visit(t)
	s := into[sandbox.Sandbox](t, v.do("POST", "/v1/sandboxes", `{}`, 201))
	box := "/v1/sandboxes/" + string(s.ID)
	if b := v.do("GET", box+"/grants", "", 200); !strings.Contains(string(b), `"grants":[]`) {
		t.Errorf("%s", b)
	}
	v.do("DELETE", box+"/grants/k", "", 404)
	v.do("PUT", box+"/grants/k", "", 404)
}
