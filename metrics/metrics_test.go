package metrics_test

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/metrics"
	"github.com/berth-dev/berth/sandbox"
)

func scrape(t *testing.T, r *metrics.Registry) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Code, w.Body.String()
}

func TestWhatIsCounted(t *testing.T) {
	r := metrics.New("1.2.3", nil)
	r.Request("GET /v1/sandboxes/{id}", 200)
	r.Request("GET /v1/sandboxes/{id}", 200)
	r.Verb("create", 30*time.Millisecond, nil)
	r.Stage("create", "queue", time.Millisecond)
	r.Verb("create", time.Second, sandbox.Errorf("x", sandbox.Exhausted, "full"))
	r.Ask(metrics.Family{Name: "berth_sandboxes", Help: "by state", Sort: metrics.Gauge, Labels: []string{"state"}},
		func() ([]metrics.Value, error) { return []metrics.Value{{3, []string{"running"}}}, nil })
	code, text := scrape(t, r)
	if code != 200 {
		t.Fatalf("%d: %s", code, text)
	}
	for _, want := range []string{
		`berth_http_requests_total{code="200",route="GET /v1/sandboxes/{id}"} 2`,
		`berth_verbs_total{outcome="ok",verb="create"} 1`,
		`berth_verbs_total{outcome="exhausted",verb="create"} 1`,
		`berth_verb_seconds_bucket{stage="total",verb="create",le="0.02"} 0`,
		`berth_verb_seconds_bucket{stage="total",verb="create",le="0.04"} 1`,
		`berth_verb_seconds_count{stage="queue",verb="create"} 1`,
		`berth_sandboxes{state="running"} 3`,
		`version="1.2.3"`,
		"go_goroutines ",
		"process_resident_memory_bytes ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is not there", want)
		}
	}
}

// TestWhatCannotBeGathered is seen by whoever looks: half an answer would be
// taken for a whole one.
func TestWhatCannotBeGathered(t *testing.T) {
	r := metrics.New("dev", nil)
	r.Ask(metrics.Family{Name: "berth_x", Help: "x", Sort: metrics.Gauge}, func() ([]metrics.Value, error) { return nil, errors.New("the store is closed") })
	if code, text := scrape(t, r); code != 500 || !strings.Contains(text, "the store is closed") {
		t.Errorf("%d: %s", code, text)
	}
}
