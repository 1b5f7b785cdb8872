package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/client"
	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
	"github.com/berth-dev/berth/test/served"
)

func TestLifecycle(t *testing.T) {
	v := visit(t)
	box := v.create(`{"name":"box","tags":["a"],"type":"basic","idle":{"timeout_seconds":3600,"ignore":["cpu"]},"lifetime":{"seconds":86400}}`)
	byName := "/v1/sandboxes/box"
	for _, step := range []struct {
		verb string
		want sandbox.State
	}{{"pause", sandbox.Paused}, {"pause", sandbox.Paused}, {"resume", sandbox.Running}, {"stop", sandbox.Stopped}, {"start", sandbox.Running}} {
		s := into[sandbox.Sandbox](t, v.do("POST", byName+"/"+step.verb, "", 200))
		if s.State != step.want || s.Name != "box" || s.Limits.MemoryBytes != 1<<30 {
			t.Errorf("%s: %+v", step.verb, s)
		}
	}
	if got := into[sandbox.Sandbox](t, v.do("POST", "/v1/sandboxes", `{"name":"box","get":true}`, 200)); "/v1/sandboxes/"+string(got.ID) != box {
		t.Errorf("get or create gave %+v", got)
	}
	v.do("POST", "/v1/sandboxes", `{"name":"box"}`, 409)
	v.do("POST", "/v1/sandboxes", `{"get":true}`, 400)
	v.do("POST", box+"/stop", "", 200)
	v.do("POST", box+"/resume", "", 409)
	v.do("POST", box+"/keepalive", `{"seconds":10}`, 409)
	v.do("POST", box+"/start", "", 200)
	v.do("POST", box+"/keepalive", `{"seconds":10}`, 200)
	v.do("POST", box+"/keepalive", `{"seconds":-1}`, 400)
	s := into[sandbox.Sandbox](t, v.do("PATCH", box, `{"metadata":{"k":"v"},"tags":["b","c"],"wake":false,"limits":{"cpu_milli":700},"idle":{"timeout_seconds":0}}`, 200))
	if s.Metadata["k"] != "v" || len(s.Tags) != 2 || *s.Wake || s.Limits.CPUMilli != 700 || s.Limits.MemoryBytes != 1<<30 || s.Idle.TimeoutSeconds != 0 {
		t.Errorf("updated: %+v", s)
	}
	if s := into[sandbox.Sandbox](t, v.do("PATCH", box, `{"metadata":{"k":null}}`, 200)); len(s.Metadata) != 0 {
		t.Errorf("metadata: %+v", s.Metadata)
	}
	for _, body := range []string{`{"type":"huge"}`, `{"limits":{"cpu_milli":1}}`, `{"idle":{"timeout_seconds":5,"action":"x"}}`, `{"color":1}`, ``} {
		v.do("PATCH", box, body, 400)
	}
	v.do("POST", box+"/pause", "", 200)
	v.do("POST", box+"/exec", `{"shell":"true"}`, 409) // it is not to be woken
	for query, want := range map[string]int{"tag=b&tag=c": 1, "tag=a": 0, "name=box": 1, "name=x": 0, "state=paused": 1} {
		if page := into[sandbox.Page](t, v.do("GET", "/v1/sandboxes?"+query, "", 200)); len(page.Sandboxes) != want {
			t.Errorf("%s: %d", query, len(page.Sandboxes))
		}
	}
	v.do("DELETE", byName, "", 204)
	v.do("GET", byName, "", 404)
	v.do("POST", byName+"/pause", "", 404)
}

// TestACallWakes: a call to a paused one is answered by its processes of before.
func TestACallWakes(t *testing.T) {
	v := visit(t)
	box := v.create("")
	started := into[sandbox.Process](t, v.do("POST", box+"/processes", `{"argv":["sh","-c","read line; echo got $line"],"stdin":true}`, 201))
	v.do("POST", box+"/pause", "", 200)
	out := into[wire.Output](t, v.do("POST", box+"/exec", `{"shell":"echo awake"}`, 200))
	if string(out.Stdout) != "awake\n" {
		t.Errorf("output %q", out.Stdout)
	}
	v.do("POST", box+"/pause", "", 200)
	v.do("POST", box+"/processes/"+started.ID+"/input?close=true", "hello\n", 204)
	if exit := into[sandbox.Exit](t, v.do("GET", box+"/processes/"+started.ID+"/wait", "", 200)); exit.Code != 0 {
		t.Errorf("exit %+v", exit)
	}
}

// TestAPausedStream breaks with the reason.
func TestAPausedStream(t *testing.T) {
	s := served.Start(t)
	c := client.New(s.URL, served.Key)
	box, err := c.Create(t.Context(), sandbox.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	events, err := c.Exec(t.Context(), string(box.ID), sandbox.Command{Shell: "echo first; sleep 1000", Detach: true})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	for range 2 {
		if _, err := events.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Pause(t.Context(), string(box.ID)); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = events.Recv()
	}
	if sandbox.KindOf(err) != sandbox.Unavailable || !strings.Contains(err.Error(), "paused") || !strings.Contains(sandbox.HintOf(err), "offsets") {
		t.Errorf("error %v, hint %q", err, sandbox.HintOf(err))
	}
}

func TestEvents(t *testing.T) {
	v := visit(t)
	box := v.create(`{"name":"box"}`)
	v.do("POST", box+"/pause", "", 200)
	page := into[sandbox.ChangePage](t, v.do("GET", "/v1/events?sandbox=box&limit=2", "", 200))
	if len(page.Events) != 2 || page.Events[1].Type != "running" {
		t.Fatalf("%+v", page)
	}
	page = into[sandbox.ChangePage](t, v.do("GET", "/v1/events?after="+page.Next, "", 200))
	if len(page.Events) != 1 || page.Events[0].Type != "paused" || page.Events[0].From != sandbox.Running {
		t.Errorf("%+v", page)
	}
	for _, q := range []string{"after=x", "limit=0", "type=never", "color=red"} {
		v.do("GET", "/v1/events?"+q, "", 400)
	}
}

// TestEventStream goes on from the last event's id.
func TestEventStream(t *testing.T) {
	v := visit(t)
	box := v.create("")
	r := v.s.Request(t, "GET", "/v1/events?type=paused&type=deleted", "")
	r.Header.Set("Accept", wire.TypeSSE)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	v.do("POST", box+"/pause", "", 200)
	id := ""
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
			id = rest
		}
		if rest, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			if c := into[sandbox.Change](t, []byte(rest)); c.Type != "paused" || c.Cursor != id {
				t.Errorf("%+v", c)
			}
			break
		}
	}
	v.do("DELETE", box, "", 204)
	c := client.New(v.s.URL, served.Key)
	stream, err := c.FollowChanges(t.Context(), sandbox.ChangeQuery{After: id, Types: []sandbox.ChangeType{"paused", "deleted"}})
	if err != nil {
		t.Fatal(err)
	}
	if e, err := stream.Recv(); err != nil || e.Type != "deleted" {
		t.Errorf("%+v, %v", e, err)
	}
	stream.Close()
	if _, err := stream.Recv(); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v", err)
	}
}

func TestWebhooks(t *testing.T) {
	got := make(chan sandbox.Change, 16)
	var secret string
	there := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		at, _ := strconv.ParseInt(r.Header.Get(sandbox.HeaderTimestamp), 10, 64)
		var c sandbox.Change
		if r.Header.Get(sandbox.HeaderSignature) == sandbox.WebhookSignature(secret, time.Unix(at, 0), body) && json.Unmarshal(body, &c) == nil {
			got <- c
		}
	}))
	defer there.Close()
	v := visit(t)
	made := into[sandbox.NewWebhook](t, v.do("POST", "/v1/webhooks", `{"url":"`+there.URL+`","events":["running"]}`, 201))
	secret = made.Secret
	v.create("")
	if c := <-got; c.Type != "running" {
		t.Errorf("%+v", c)
	}
	all := v.do("GET", "/v1/webhooks", "", 200)
	if strings.Contains(string(all), secret) || len(into[wire.Webhooks](t, all).Webhooks) != 1 {
		t.Errorf("listed: %s", all)
	}
	v.do("GET", "/v1/webhooks/"+made.ID, "", 200)
	v.do("POST", "/v1/webhooks", `{"url":"file:///etc/passwd"}`, 400)
	v.do("DELETE", "/v1/webhooks/"+made.ID, "", 204)
	v.do("GET", "/v1/webhooks/"+made.ID, "", 404)
}
