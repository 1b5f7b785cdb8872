package engine_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-dev/berth/engine"
	"github.com/berth-dev/berth/sandbox"
)

func typesOf(events []sandbox.Change) (types []sandbox.ChangeType) {
	for _, c := range events {
		types = append(types, c.Type)
	}
	return types
}

func TestChanges(t *testing.T) {
	h := newHouse(t)
	s := h.paused(t, sandbox.CreateRequest{Name: "web"})
	if _, err := h.Stop(operator(t), "web"); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Update(operator(t), "web", sandbox.Update{Limits: &sandbox.Limits{CPUMilli: 100}}); err != nil {
		t.Fatal(err)
	}
	if err := h.Remove(operator(t), "web"); err != nil {
		t.Fatal(err)
	}
	want := []sandbox.ChangeType{"starting", "running", "paused", "stopped", "resized", "deleted"}
	page, err := h.Changes(operator(t), sandbox.ChangeQuery{})
	if err != nil || !slices.Equal(typesOf(page.Events), want) || page.Missed {
		t.Fatalf("%q, %v", typesOf(page.Events), err)
	}
	for _, c := range page.Events {
		if c.Sandbox != s.ID || c.Name != "web" || c.Time.IsZero() {
			t.Errorf("%+v", c)
		}
	}
	var all []sandbox.ChangeType
	for q := (sandbox.ChangeQuery{Limit: 2}); ; {
		page, err := h.Changes(operator(t), q)
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Events) == 0 {
			break
		}
		all, q.After = append(all, typesOf(page.Events)...), page.Next
	}
	if !slices.Equal(all, want) {
		t.Errorf("page by page: %q", all)
	}
	page, err = h.Changes(operator(t), sandbox.ChangeQuery{Sandbox: "web", Types: []sandbox.ChangeType{"deleted"}})
	if err != nil || len(page.Events) != 1 {
		t.Errorf("%+v, %v", page, err)
	}
	for _, q := range []sandbox.ChangeQuery{{After: "x"}, {After: "-1"}, {Limit: -1}, {Limit: 5000}, {Types: []sandbox.ChangeType{"never"}}} {
		_, err := h.Changes(operator(t), q)
		wantKind(t, err, sandbox.Invalid)
	}
}

// TestRetention keeps the last ones, and says when some are missing.
func TestRetention(t *testing.T) {
	few := func(c *engine.Config) { c.Events = 10 }
	h := newHouse(t, few)
	for range 10 {
		if err := h.Remove(operator(t), string(h.create(t, sandbox.CreateRequest{}).ID)); err != nil {
			t.Fatal(err)
		}
	}
	page, err := h.Changes(operator(t), sandbox.ChangeQuery{})
	if err != nil || len(page.Events) != 10 {
		t.Fatalf("%d are kept, %v", len(page.Events), err)
	}
	last := page.Next
	if page, err = h.Changes(operator(t), sandbox.ChangeQuery{After: "0000000000000003"}); err != nil || !page.Missed {
		t.Errorf("%+v, %v", page, err)
	}
	h.Close()
	h.open(t, few)
	if page, err = h.Changes(operator(t), sandbox.ChangeQuery{After: last}); err != nil || page.Missed || len(page.Events) != 0 || page.Next != last {
		t.Errorf("after a restart: %+v, %v", page, err)
	}
}

// TestFollow: a reader sees every change once, in order, while many happen.
func TestFollow(t *testing.T) {
	h := newHouse(t)
	const boxes = 30
	stream, err := h.FollowChanges(operator(t), sandbox.ChangeQuery{After: engine.Latest})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	result := make(chan []sandbox.Change, 1)
	go func() {
		var all []sandbox.Change
		for len(all) < 3*boxes {
			c, err := stream.Recv()
			if err != nil {
				t.Error(err)
				break
			}
			all = append(all, c)
		}
		result <- all
	}()
	var wg sync.WaitGroup
	for range boxes {
		wg.Go(func() {
			s, err := h.Create(operator(t), sandbox.CreateRequest{})
			if err == nil {
				err = h.Remove(operator(t), string(s.ID))
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	all := <-result
	if !slices.IsSortedFunc(all, func(a, b sandbox.Change) int { return bytes.Compare([]byte(a.Cursor), []byte(b.Cursor)) }) {
		t.Error("out of order")
	}
	stream.Close()
	if _, err := stream.Recv(); sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("after the end: %v", err)
	}
}

// receiver is the other end of a webhook.
type receiver struct {
	mu     sync.Mutex
	secret string
	status []int // of the next answers; then 200
	got    []sandbox.Change
	seen   []string // deliveries, failed attempts too
	bad    []string
}

func (r *receiver) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	stamp, _ := strconv.ParseInt(req.Header.Get(sandbox.HeaderTimestamp), 10, 64)
	if req.Header.Get(sandbox.HeaderSignature) != sandbox.WebhookSignature(r.secret, time.Unix(stamp, 0), body) {
		r.bad = append(r.bad, "signature")
	}
	if d := time.Since(time.Unix(stamp, 0)); d < 0 || d > time.Second {
		r.bad = append(r.bad, "timestamp")
	}
	r.seen = append(r.seen, req.Header.Get(sandbox.HeaderDelivery))
	status := http.StatusOK
	if len(r.status) > 0 {
		status, r.status = r.status[0], r.status[1:]
	}
	if status == 0 {
		return nil, errors.New("connection refused")
	}
	if status == http.StatusOK {
		var c sandbox.Change
		if err := json.Unmarshal(body, &c); err != nil {
			r.bad = append(r.bad, err.Error())
		}
		r.got = append(r.got, c)
	}
	return &http.Response{StatusCode: status, Status: fmt.Sprint(status), Header: http.Header{"Location": {"http://elsewhere/"}}, Body: http.NoBody, Request: req}, nil
}

func (r *receiver) types() []sandbox.ChangeType {
	r.mu.Lock()
	defer r.mu.Unlock()
	return typesOf(r.got)
}

func TestWebhook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{secret: "a secret of some length"}
		withHooks := func(c *engine.Config) { c.Hooks = &http.Client{Transport: r} }
		h := newHouse(t, withHooks)
		defer func() { h.Close() }()
		h.create(t, sandbox.CreateRequest{}) // before: nobody is told
		w, err := h.CreateWebhook(operator(t), sandbox.WebhookRequest{URL: "http://there/hook", Secret: r.secret, Events: []sandbox.ChangeType{"paused", "running"}})
		if err != nil || w.Secret != r.secret {
			t.Fatalf("%+v, %v", w, err)
		}
		r.status = []int{500, 302, 0} // a fault, a redirect, nobody there
		s := h.create(t, sandbox.CreateRequest{})
		after(500 * time.Millisecond)
		got, err := h.Webhook(operator(t), w.ID)
		if err != nil || got.Failures != 1 || got.LastError == "" {
			t.Errorf("after one failure: %+v, %v", got, err)
		}
		h.Close() // in the midst of it
		h.open(t, withHooks)
		after(time.Minute)
		if _, err := h.Pause(operator(t), string(s.ID)); err != nil {
			t.Fatal(err)
		}
		after(time.Minute)
		if types := r.types(); !slices.Equal(types, []sandbox.ChangeType{"running", "paused"}) || len(r.bad) > 0 {
			t.Errorf("delivered %q, bad %q", types, r.bad)
		}
		if len(r.seen) != 5 || r.seen[0] != r.seen[3] || r.seen[3] == r.seen[4] {
			t.Errorf("deliveries %q", r.seen)
		}
		if got, err := h.Webhook(operator(t), w.ID); err != nil || got.Failures != 0 || got.LastError != "" || got.Dropped != 0 {
			t.Errorf("%+v, %v", got, err)
		}
		if err := h.RemoveWebhook(operator(t), w.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Resume(operator(t), string(s.ID)); err != nil {
			t.Fatal(err)
		}
		after(time.Minute)
		if n := len(r.types()); n != 2 {
			t.Errorf("%d after the removal", n)
		}
	})
}

// TestWebhookThatNeverAnswers gives up at last, and holds up nothing.
func TestWebhookThatNeverAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{secret: "a secret of some length", status: make([]int, 20)}
		h := newHouse(t, func(c *engine.Config) { c.Hooks = &http.Client{Transport: r} })
		defer h.Close()
		w, err := h.CreateWebhook(operator(t), sandbox.WebhookRequest{URL: "https://there/", Secret: r.secret})
		if err != nil {
			t.Fatal(err)
		}
		h.create(t, sandbox.CreateRequest{})
		after(24 * time.Hour)
		got, err := h.Webhook(operator(t), w.ID)
		if err != nil || got.Dropped != 1 || !slices.Equal(r.types(), []sandbox.ChangeType{"running"}) {
			t.Errorf("%+v, %v, delivered %q", got, err, r.types())
		}
	})
}

func TestBadWebhooks(t *testing.T) {
	h := newHouse(t)
	for _, r := range []sandbox.WebhookRequest{{}, {URL: "ftp://x/"}, {URL: "http://"}, {URL: "/x"}, {URL: "http://u:p@x/"},
		{URL: "http://x/", Secret: "short"}, {URL: "http://x/", Events: []sandbox.ChangeType{"never"}}} {
		_, err := h.CreateWebhook(operator(t), r)
		wantKind(t, err, sandbox.Invalid)
	}
	_, err := h.Webhook(operator(t), "wh-none")
	wantKind(t, err, sandbox.NotFound)
	wantKind(t, h.RemoveWebhook(operator(t), "../x"), sandbox.NotFound)
}
