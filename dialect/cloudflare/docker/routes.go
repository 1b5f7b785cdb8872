package docker

import (
	"net/http"
	"regexp"
	"time"
)

// handler serves a call, or returns why it does not.
type handler func(w http.ResponseWriter, r *http.Request) error

// calls is the whole surface.
func (d *Dialect) calls() map[string]handler {
	return map[string]handler{
		"GET /_ping":   d.ping,
		"GET /version": d.version,
		"GET /info":    d.info,

		"POST /containers/create":        d.create,
		"GET /containers/json":           d.list,
		"GET /containers/{name}/json":    d.inspect,
		"POST /containers/{name}/start":  d.start,
		"POST /containers/{name}/wait":   d.wait,
		"POST /containers/{name}/kill":   d.kill,
		"POST /containers/{name}/stop":   d.stop,
		"DELETE /containers/{name}":      d.remove,
		"GET /containers/{name}/archive": d.getArchive,
		"PUT /containers/{name}/archive": d.putArchive,
		"POST /containers/{name}/exec":   d.createExec,
		"POST /exec/{exec}/start":        d.startExec,
		"GET /exec/{exec}/json":          d.inspectExec,
		"POST /exec/{exec}/resize":       d.resizeExec,
		"POST /commit":                   d.commit,
		"GET /images/{image...}":         d.inspectImage,
		"DELETE /images/{image...}":      d.removeImage,
		"GET /networks/{network}":        d.network,
		"GET /volumes":                   d.volumes,
		"POST /volumes/create":           d.createVolume,
		"GET /volumes/{volume}":          d.inspectVolume,
		"DELETE /volumes/{volume}":       d.removeVolume,
	}
}

// versioned is the prefix by which a client names the version that it speaks: all
// are served alike.
var versioned = regexp.MustCompile(`^/v[0-9]{1,2}\.[0-9]{1,3}(/.*)$`)

// routes is the handler of all calls.
func (d *Dialect) routes() http.Handler {
	mux := http.NewServeMux()
	for pattern, serve := range d.calls() {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := serve(w, r); err != nil {
				d.render(w, r, err)
			}
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, http.StatusNotFound, map[string]string{"message": "page not found"})
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begin, uri := time.Now(), r.URL.RequestURI()
		defer func() { d.log.Debug("container call", "method", r.Method, "uri", uri, "took", time.Since(begin)) }()
		if m := versioned.FindStringSubmatch(r.URL.Path); m != nil {
			r.URL.Path, r.URL.RawPath = m[1], ""
		}
		mux.ServeHTTP(w, r)
	})
}
