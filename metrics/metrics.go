// Package metrics turns what the parts of a server count into Prometheus
// metrics.
//
// No label holds an id, a name or anything else that a client or a sandbox
// chooses: the number of series is bounded by what this program knows.
package metrics

import (
	"log/slog"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/berth-dev/berth/sandbox"
)

// Registry gathers a server's metrics. All methods may be called at once from
// many goroutines.
type Registry struct {
	reg      *prometheus.Registry
	requests *prometheus.CounterVec
	verbs    *prometheus.CounterVec
	stages   *prometheus.HistogramVec
	log      *slog.Logger
}

// buckets are in seconds: from a warm create to the save of a large memory.
var buckets = []float64{.001, .0025, .005, .01, .02, .04, .08, .15, .3, .6, 1.2, 2.5, 5, 10, 30, 60}

// New returns a Registry with what is known of this process. log hears of what
// cannot be gathered; nil means nobody.
func New(version string, log *slog.Logger) *Registry {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	r := &Registry{
		log: log,
		reg: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_http_requests_total", Help: "Requests to the native API that were answered, by route and status."}, []string{"route", "code"}),
		verbs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_verbs_total", Help: "Verbs that came to their end, by outcome: ok, or the kind of the error."}, []string{"verb", "outcome"}),
		stages: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "berth_verb_seconds", Help: "Time that verbs took which succeeded, by stage; the stage total is the whole.", Buckets: buckets}, []string{"verb", "stage"}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "berth_build_info", Help: "1, with the version of the server and of Go.",
		ConstLabels: prometheus.Labels{"version": version, "go": runtime.Version()}})
	build.Set(1)
	r.reg.MustRegister(r.requests, r.verbs, r.stages, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// Handler serves the metrics in the formats of Prometheus.
func (r *Registry) Handler() http.Handler {
	return promhttp.HandlerFor(r.reg, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(r.log.Handler(), slog.LevelError), ErrorHandling: promhttp.HTTPErrorOnError, MaxRequestsInFlight: 4,
		Timeout: 10 * time.Second,
	})
}

// Request counts a request that was answered. route is a pattern, not a path.
func (r *Registry) Request(route string, status int) {
	r.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
}

// Verb counts a verb that came to its end.
func (r *Registry) Verb(verb string, took time.Duration, err error) {
	outcome := "ok"
	if err != nil {
		outcome = string(sandbox.KindOf(err))
	} else {
		r.Stage(verb, "total", took)
	}
	r.verbs.WithLabelValues(verb, outcome).Inc()
}

// Stage notes how long a part of a verb took.
func (r *Registry) Stage(verb, stage string, took time.Duration) {
	r.stages.WithLabelValues(verb, stage).Observe(took.Seconds())
}

// Sort is what becomes of a value.
type Sort = prometheus.ValueType

// The sorts.
const (
	Counter = prometheus.CounterValue // only grows
	Gauge   = prometheus.GaugeValue
)

// Family is a metric that is asked for when somebody looks.
type Family struct {
	Name, Help string
	Sort       Sort
	Labels     []string
}

// Value is one value of a Family, with as many labels as that has.
type Value struct {
	Value  float64
	Labels []string
}

// Ask adds a family whose values gather gives, one look at a time. An error fails
// the look.
func (r *Registry) Ask(f Family, gather func() ([]Value, error)) {
	r.reg.MustRegister(&asked{desc: prometheus.NewDesc(f.Name, f.Help, f.Labels, nil), sort: f.Sort, gather: gather})
}

type asked struct {
	desc   *prometheus.Desc
	sort   Sort
	mu     sync.Mutex
	gather func() ([]Value, error)
}

func (a *asked) Describe(ch chan<- *prometheus.Desc) { ch <- a.desc }

func (a *asked) Collect(ch chan<- prometheus.Metric) {
	a.mu.Lock()
	defer a.mu.Unlock()
	all, err := a.gather()
	if err != nil {
		ch <- prometheus.NewInvalidMetric(a.desc, err)
		return
	}
	for _, v := range all {
		ch <- prometheus.MustNewConstMetric(a.desc, a.sort, v.Value, v.Labels...)
	}
}
