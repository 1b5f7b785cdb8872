package api

import "time"

// Routes lists the surface as method and path.
func (a *API) Routes() (all [][2]string) {
	for _, r := range a.routes() {
		all = append(all, [2]string{r.method, r.path})
	}
	return all
}

// Needs is what a route takes: "open", "operator", or a scope; "" is a mistake.
func (a *API) Needs() map[[2]string]string {
	all := map[[2]string]string{}
	for _, r := range a.routes() {
		need := string(r.scope)
		if r.open {
			need = "open"
		} else if r.operator {
			need = "operator"
		}
		all[[2]string{r.method, r.path}] = need
	}
	return all
}

// Span is what a Range header selects of a file of a size.
func Span(header string, size int64) (offset, length int64, ok bool) {
	r, err := parseRange(header)
	if r == nil || err != nil {
		return 0, 0, false
	}
	part, err := r.of(size)
	return part.Offset, part.Length, err == nil
}

var (
	QueryOf   = queryOf
	ASCIIJSON = asciiJSON
)

// Numbers asks for one number of each sort.
func Numbers(q *query) (limit, mode int64) {
	return q.positive("limit", 1000), q.number("mode", 8, 32)
}

// Check ends the reading of a query.
func Check(q *query) error { return q.check() }

// SetTime makes the API sign and check URLs by another clock.
func (a *API) SetTime(now func() time.Time) { a.signer.now = now }

// PathOf asks for a path.
func PathOf(q *query) string { return q.path("path") }
