package docker_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// TestSession removes by label and id what one session has made, and nothing else.
func TestSession(t *testing.T) {
	k := newDocks(t, false)
	for _, one := range []struct{ name, session string }{{"a", "1"}, {"b", "2"}} {
		labels := fmt.Sprintf(`"Labels":{"dev.workerd.session":%q}`, one.session)
		k.must(t, 201, "POST", "/containers/create?name="+one.name+"-proxy", `{"Image":"p","Cmd":["--http-ingress-address","x"],`+labels+`}`)
		k.must(t, 204, "POST", "/containers/"+one.name+"-proxy/start", "")
		k.must(t, 201, "POST", "/containers/create?name="+one.name, fmt.Sprintf(`{"Image":%q,%s,"HostConfig":{"NetworkMode":"container:%s-proxy"}}`, vendorRef, labels, one.name))
	}
	names := func(query string) string {
		t.Helper()
		var rows []struct{ Names []string }
		if err := json.Unmarshal([]byte(k.must(t, 200, "GET", "/containers/json"+query, "")), &rows); err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, r := range rows {
			all = append(all, r.Names[0])
		}
		slices.Sort(all)
		return strings.Join(all, " ")
	}
	if got := names(""); got != "/a-proxy /b-proxy" {
		t.Errorf("those that run: %s", got)
	}
	ofFirst := "?all=1&filters=" + url.QueryEscape(`{"label":["dev.workerd.session=1"]}`)
	if got := names(ofFirst); got != "/a /a-proxy" {
		t.Errorf("those of a session: %s", got)
	}
	k.must(t, 400, "GET", "/containers/json?filters="+url.QueryEscape(`{"since":["x"]}`), "")
	k.must(t, 400, "GET", "/containers/json?filters=x", "")
	for _, n := range []string{"a", "a-proxy"} {
		k.must(t, 204, "DELETE", "/containers/"+k.inspect(t, n).ID+"?force=1", "")
	}
	if got := names("?all=true"); got != "/b /b-proxy" {
		t.Errorf("what is left: %s", got)
	}
	k.must(t, 404, "DELETE", "/containers/"+strings.Repeat("0", 64)+"?force=1", "")
}

// TestRemovedAsleep has a container that sleeps be removed, as workerd does soon: it is
// gone, and its sandbox waits for the next one of its name, but not for ever.
func TestRemovedAsleep(t *testing.T) {
	k := newDocks(t, false)
	sleep := func() {
		t.Helper()
		k.must(t, 204, "POST", "/containers/"+name+"/kill?signal=SIGTERM", "")
		k.must(t, 204, "DELETE", "/containers/"+name+"?force=true", "")
		k.must(t, 204, "DELETE", "/containers/"+name+"-proxy?force=true", "")
		k.must(t, 404, "POST", "/containers/"+name+"/wait?condition=removed", "")
		k.must(t, 404, "DELETE", "/containers/"+name+"?force=true", "")
		if got := k.must(t, 200, "GET", "/containers/json?all=true", ""); strings.Contains(got, name) {
			t.Errorf("it is among %s", got)
		}
	}
	k.sidecar(t, name)
	k.create(t, name, vendorRef)
	first := k.box(t)
	sleep()
	k.end() // another server knows as much
	k.open(t)
	k.sidecar(t, name)
	k.create(t, name, vendorRef)
	if s := k.box(t); s.ID != first.ID || s.State != sandbox.Running {
		t.Fatalf("the next one has %s, %s; it was %s", s.ID, s.State, first.ID)
	}
	sleep()
	k.end()
	k.keep = time.Nanosecond
	k.open(t)
	ctx := sandbox.WithCaller(t.Context(), sandbox.Operator())
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		page, err := k.Engine.List(ctx, sandbox.ListQuery{})
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Sandboxes) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("nobody comes back, and there is still %+v", page.Sandboxes)
		}
	}
}

// TestLookedAtAsleep has a container that was removed asleep be looked at, as the next
// object of its name does: it seems to run, wakes when it is called, and can be ended.
func TestLookedAtAsleep(t *testing.T) {
	k := newDocks(t, false)
	remove := func(status int) { k.must(t, status, "DELETE", "/containers/"+name+"?force=true", "") }
	looked := func(state sandbox.State) sandbox.Sandbox {
		t.Helper()
		if c := k.inspect(t, name); !c.State.Running {
			t.Fatalf("it seems to be %+v", c.State)
		}
		s := k.box(t)
		if s.State != state {
			t.Fatalf("its sandbox is %s, not %s", s.State, state)
		}
		return s
	}
	k.sidecar(t, name)
	k.create(t, name, vendorRef)
	k.must(t, 204, "POST", "/containers/"+name+"/kill?signal=SIGTERM", "")
	remove(204)
	k.must(t, 204, "DELETE", "/containers/"+name+"-proxy?force=true", "")
	first := looked(sandbox.Paused)

	// Its object ends without having called it, and there is another.
	remove(204)
	k.must(t, 404, "POST", "/containers/"+name+"/wait?condition=removed", "")
	k.must(t, 204, "DELETE", "/containers/"+name+"-proxy?force=true", "")
	if s := looked(sandbox.Paused); s.ID != first.ID {
		t.Fatalf("it was %s, now %s", first.ID, s.ID)
	}
	k.end() // another server knows as much
	k.open(t)
	looked(sandbox.Paused)

	// It sleeps again, or is called.
	ended := k.wait(t, name+"/wait")
	looked(sandbox.Paused)
	k.must(t, 204, "POST", "/containers/"+name+"/kill?signal=SIGTERM", "")
	if got := <-ended; got != `200 {"StatusCode":0}` {
		t.Fatalf("wait: %s", got)
	}
	remove(204)
	k.must(t, 204, "DELETE", "/containers/"+name+"-proxy?force=true", "")
	looked(sandbox.Paused)
	port := k.inspect(t, name+"-proxy").NetworkSettings.Ports["39001/tcp"][0].HostPort
	if status, text := get(t, port, "127.0.0.1:3000", "/x"); status != 200 || !strings.Contains(text, string(first.ID)) {
		t.Fatalf("called: %d %s", status, text)
	}

	// It is ended for good: created again it is another; left alone it is gone.
	remove(204)
	k.must(t, 204, "DELETE", "/containers/"+name+"-proxy?force=true", "")
	k.sidecar(t, name)
	k.create(t, name, vendorRef)
	second := k.box(t)
	if second.ID == first.ID {
		t.Fatal("what was ended goes on")
	}
	k.must(t, 204, "POST", "/containers/"+name+"/kill?signal=SIGTERM", "")
	remove(204)
	looked(sandbox.Paused)
	remove(204)
	remove(204)
	k.must(t, 404, "GET", "/containers/"+name+"/json", "")
	page, err := k.Engine.List(sandbox.WithCaller(t.Context(), sandbox.Operator()), sandbox.ListQuery{})
	if err != nil || len(page.Sandboxes) > 0 {
		t.Fatalf("there is still %+v, %v", page.Sandboxes, err)
	}
}

// TestLostSight creates anew what runs: its maker has missed that it does.
func TestLostSight(t *testing.T) {
	k := newDocks(t, false)
	k.sidecar(t, name)
	k.create(t, name, vendorRef)
	first := k.box(t).ID
	k.create(t, name, vendorRef)
	if s := k.box(t); s.ID != first || s.State != sandbox.Running {
		t.Errorf("the sandbox is %s, %s; it was %s", s.ID, s.State, first)
	}
}

// TestFork has a copy of a container's sandbox be none.
func TestFork(t *testing.T) {
	k := newDocks(t, false)
	k.sidecar(t, name)
	k.create(t, name, vendorRef)
	ctx := sandbox.WithCaller(t.Context(), sandbox.Operator())
	box := k.box(t)
	// As a fork does, it has all that is kept of its parent, and no name.
	fork, err := k.Engine.Create(ctx, sandbox.CreateRequest{Metadata: box.Metadata, Tags: box.Tags})
	if err != nil {
		t.Fatal(err)
	}
	k.end()
	k.open(t)
	if got := k.must(t, 200, "GET", "/containers/json", ""); strings.Count(got, `"Id"`) != 2 { // the container and its sidecar
		t.Errorf("there are %s", got)
	}
	k.must(t, 204, "DELETE", "/containers/"+name+"?force=true", "")
	if left := k.box(t); left.ID != fork.ID {
		t.Errorf("what is left is %+v", left)
	}
}

func TestCommit(t *testing.T) {
	k := newDocks(t, false)
	k.must(t, 201, "POST", "/containers/create?name=box", `{"Image":"`+vendorRef+`"}`)
	k.must(t, 204, "POST", "/containers/box/start", "")
	ctx := sandbox.WithCaller(t.Context(), sandbox.Operator())
	write := func(text string) {
		t.Helper()
		if _, err := k.Engine.WriteFile(ctx, string(k.box(t).ID), "/kept", sandbox.WriteOptions{}, strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	k.must(t, 400, "POST", "/commit?container=box&repo=cloudflare/sandbox", "")
	k.must(t, 201, "POST", "/commit?container=box&repo=kept&tag=1", "")
	write("second")
	k.must(t, 201, "POST", "/commit?container=box&repo=kept&tag=1", "") // in the place of the first
	k.must(t, 200, "GET", "/images/kept:1/json", "")
	k.must(t, 204, "DELETE", "/containers/box?force=true", "")
	k.must(t, 201, "POST", "/containers/create?name=next", `{"Image":"kept:1"}`)
	k.must(t, 204, "POST", "/containers/next/start", "")
	body, _, err := k.Engine.ReadFile(ctx, string(k.box(t).ID), "/kept", sandbox.ReadRange{})
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if got, err := io.ReadAll(body); err != nil || string(got) != "second" {
		t.Errorf("the image holds %q, %v", got, err)
	}
	k.must(t, 204, "DELETE", "/containers/next?force=true", "")
	k.must(t, 200, "DELETE", "/images/kept:1", "")
	k.must(t, 404, "GET", "/images/kept:1/json", "")
}
