package api

import (
	"net/http"

	"github.com/berth-dev/berth/sandbox"
)

// Counter hears of every request that was answered. route is a pattern.
type Counter interface {
	Request(route string, status int)
}

type noCounter struct{}

func (noCounter) Request(string, int) {}

// metrics answers in the formats of Prometheus. They tell of every account, so
// they are the operator's, unless the configuration opens them.
func (a *API) metrics(w http.ResponseWriter, r *http.Request) error {
	if a.measures == nil {
		return sandbox.Errorf("read metrics", sandbox.Unsupported, "this server keeps none")
	}
	a.measures.ServeHTTP(w, r)
	return nil
}
