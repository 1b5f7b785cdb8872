package api_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

func TestSnapshots(t *testing.T) {
	v := visit(t)
	box := v.create(`{"name":"box"}`)
	v.do("PUT", box+"/files?path=/workspace/f", "then", 200)
	v.do("POST", box+"/snapshots", `{"keep":"all"}`, 400)
	v.do("POST", box+"/snapshots", `{"color":1}`, 400)
	v.do("POST", box+"/snapshots", "", 501) // the fake driver keeps no memory
	header, b := v.send(v.s.Request(t, "POST", box+"/snapshots", `{"name":"then","keep":"disk","ttl_seconds":3600}`), 201)
	sn := into[sandbox.Snapshot](t, b)
	if sn.Name != "then" || sn.Keep != sandbox.KeepDisk || sn.Expires.IsZero() || header.Get("Location") != "/v1/snapshots/"+string(sn.ID) {
		t.Errorf("%+v at %s", sn, header.Get("Location"))
	}
	v.do("POST", box+"/snapshots", `{"name":"then","keep":"disk"}`, 409)
	v.do("PUT", box+"/files?path=/workspace/f", "now", 200)
	for _, ref := range []string{"then", string(sn.ID)} {
		if got := into[sandbox.Snapshot](t, v.do("GET", "/v1/snapshots/"+ref, "", 200)); got != sn {
			t.Errorf("%+v", got)
		}
	}
	for query, want := range map[string]int{"": 1, "?sandbox=" + string(sn.Sandbox): 1, "?sandbox=" + string(sn.ID): 0} {
		if got := into[wire.Snapshots](t, v.do("GET", "/v1/snapshots"+query, "", 200)); len(got.Snapshots) != want {
			t.Errorf("%q: %+v", query, got)
		}
	}
	v.do("GET", "/v1/snapshots?color=1", "", 400)
	child := v.create(`{"snapshot":"then"}`)
	if got := v.do("GET", child+"/files?path=/workspace/f", "", 200); string(got) != "then" {
		t.Errorf("a child has %q", got)
	}
	v.do("POST", "/v1/sandboxes", `{"snapshot":"then","template":"other"}`, 400)
	v.do("POST", "/v1/sandboxes", `{"snapshot":"nothing"}`, 404)
	if s := into[sandbox.Sandbox](t, v.do("POST", box+"/rollback", `{"snapshot":"then"}`, 200)); s.State != sandbox.Running || s.Snapshot != sn.ID {
		t.Errorf("%+v", s)
	}
	if got := v.do("GET", box+"/files?path=/workspace/f", "", 200); string(got) != "then" {
		t.Errorf("taken back it has %q", got)
	}
	v.do("POST", box+"/rollback", `{}`, 400)
	v.do("POST", box+"/rollback", `{"snapshot":"nothing"}`, 404)
	v.transfers()
	v.do("DELETE", "/v1/snapshots/then", "", 204)
	v.do("DELETE", "/v1/snapshots/then", "", 404)
}

// transfers exports the snapshot "then" and imports it.
func (v *visitor) transfers() {
	v.t.Helper()
	header, file := v.send(v.s.Request(v.t, "GET", "/v1/snapshots/then/export", ""), 200)
	if header.Get("Content-Type") != "application/x-tar" {
		v.t.Errorf("an export is %s", header.Get("Content-Type"))
	}
	v.do("GET", "/v1/snapshots/nothing/export", "", 404)
	r := v.s.Request(v.t, "POST", "/v1/snapshots?name=there&ttl_seconds=60", string(file))
	_, b := v.send(r, 201)
	if sn := into[sandbox.Snapshot](v.t, b); sn.Name != "there" || sn.Expires.IsZero() {
		v.t.Errorf("%+v", sn)
	}
	v.do("POST", "/v1/snapshots?name=there", string(file), 409)
	v.do("POST", "/v1/snapshots?color=1", string(file), 400)
	v.do("POST", "/v1/snapshots", string(file[:len(file)/2]), 400)
	v.do("POST", "/v1/snapshots", string(bytes.Replace(file, []byte("chunks/"), []byte("chunky/"), 1)), 400)
	tenant := &strangers{v, v.tenant("tenant")}
	if status, got := tenant.ask("POST", "/v1/snapshots", string(file)); status != http.StatusForbidden {
		v.t.Errorf("an account imports: %d %s", status, got)
	}
	v.do("DELETE", "/v1/snapshots/there", "", 204)
}

func TestBackups(t *testing.T) {
	v := visit(t)
	box := v.create("")
	v.do("PUT", box+"/files?path=/workspace/p/a/f&parents=true", "kept", 200)
	v.do("PUT", box+"/files?path=/workspace/p/node_modules/g&parents=true", "left", 200)
	v.do("POST", box+"/backups", `{}`, 400)
	v.do("POST", box+"/backups", `{"path":"relative"}`, 400)
	v.do("POST", box+"/backups", `{"path":"/nowhere"}`, 404)
	v.do("POST", box+"/backups", `{"path":"/workspace/p/a/f"}`, 400)
	v.do("POST", box+"/backups", `{"path":"/workspace/p","exclude":["[a"]}`, 400)
	v.do("POST", box+"/backups", `{"path":"/workspace/p","exclude":[""]}`, 400)
	b := into[sandbox.Backup](t, v.do("POST", box+"/backups", `{"path":"/workspace/p","exclude":["node_modules"],"ttl_seconds":60}`, 201))
	if b.Path != "/workspace/p" || b.Expires.IsZero() || b.Bytes == 0 {
		t.Errorf("%+v", b)
	}
	v.do("DELETE", box+"/files?path=/workspace/p&recursive=true", "", 204)
	other := v.create("")
	u := into[sandbox.Unpacked](t, v.do("POST", box+"/restore-backup", `{"backup":"`+string(b.ID)+`"}`, 200))
	if got := v.do("GET", box+"/files?path=/workspace/p/a/f", "", 200); string(got) != "kept" || u.Files != 1 {
		t.Errorf("%q, %+v", got, u)
	}
	v.do("GET", box+"/files?path=/workspace/p/node_modules/g", "", 404)
	v.do("POST", other+"/restore-backup", `{"backup":"`+string(b.ID)+`","path":"/workspace/there"}`, 200)
	if got := v.do("GET", other+"/files?path=/workspace/there/a/f", "", 200); string(got) != "kept" {
		t.Errorf("%q", got)
	}
	v.do("POST", other+"/restore-backup", `{"backup":"nothing"}`, 404)
	for query, want := range map[string]int{"": 1, "?sandbox=" + string(b.Sandbox): 1, "?sandbox=" + strings.TrimPrefix(other, "/v1/sandboxes/"): 0} {
		if got := into[wire.Backups](t, v.do("GET", "/v1/backups"+query, "", 200)); len(got.Backups) != want {
			t.Errorf("%q: %+v", query, got)
		}
	}
	tenant := &strangers{v, v.tenant("tenant")}
	for method, path := range map[string]string{"GET": "/v1/backups/", "DELETE": "/v1/backups/"} {
		if status, got := tenant.ask(method, path+string(b.ID), ""); status != http.StatusNotFound {
			t.Errorf("%s of another's backup: %d %s", method, status, got)
		}
	}
	v.do("GET", "/v1/backups/"+string(b.ID), "", 200)
	v.do("DELETE", "/v1/backups/"+string(b.ID), "", 204)
	v.do("DELETE", "/v1/backups/"+string(b.ID), "", 404)
}
