package docker

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// row is one container of a list.
type row struct {
	ID     string `json:"Id"`
	Names  []string
	Image  string
	State  string
	Status string
	Labels map[string]string
}

// list names containers and sidecars: those that run, or all.
func (d *Dialect) list(w http.ResponseWriter, r *http.Request) error {
	filters, err := filtersOf(r)
	if err != nil {
		return err
	}
	all, err := d.containers(r.Context())
	if err != nil {
		return err
	}
	rows := []row{}
	add := func(one row) {
		one.Status = one.State
		if one.Labels = orNone(one.Labels); filters.match(&one) && (one.State == string(running) || isTrue(r.URL.Query().Get("all"))) {
			rows = append(rows, one)
		}
	}
	over := filters.session()
	for _, c := range all {
		if c.Gone && !over {
			continue
		}
		add(row{ID: c.idOf(), Names: []string{"/" + c.Name}, Image: c.Image, State: string(c.Phase), Labels: c.Labels})
	}
	for _, s := range d.allSidecars() {
		b := s.describe()
		add(row{ID: b.ID, Names: []string{b.Name}, Image: b.Config.Image, State: b.State.Status, Labels: b.Config.Labels})
	}
	writeJSON(w, http.StatusOK, rows)
	return nil
}

func orNone(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

func (d *Dialect) allSidecars() []*sidecar {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make([]*sidecar, 0, len(d.sidecars))
	for _, s := range d.sidecars {
		all = append(all, s)
	}
	return all
}

// filters select containers: of each kind one must match, of labels all.
type filters map[string][]string

// filtersOf reads the filters of a request. One that is not known is refused: what
// is listed is often what is removed next.
func filtersOf(r *http.Request) (filters, error) {
	text := r.URL.Query().Get("filters")
	if text == "" {
		return nil, nil
	}
	var f filters
	if err := json.Unmarshal([]byte(text), &f); err != nil {
		return nil, invalid("filters: %v", err)
	}
	for kind := range f {
		if !slices.Contains([]string{"label", "name", "id", "status", "ancestor"}, kind) {
			return nil, invalid("the filter %.40q is not known", kind)
		}
	}
	return f, nil
}

// session reports whether only what belongs to sessions is asked for: who does so ends
// one, and what sleeps is of no use to anybody after it.
func (f filters) session() bool {
	return slices.ContainsFunc(f["label"], func(want string) bool { return strings.HasPrefix(want, sessionLabel+"=") })
}

func (f filters) match(c *row) bool {
	one := func(kind string, ok func(string) bool) bool {
		return len(f[kind]) == 0 || slices.ContainsFunc(f[kind], ok)
	}
	labelled := !slices.ContainsFunc(f["label"], func(want string) bool {
		key, value, valued := strings.Cut(want, "=")
		has, ok := c.Labels[key]
		return !ok || valued && has != value
	})
	return labelled &&
		one("name", func(s string) bool { return strings.Contains(c.Names[0], s) }) &&
		one("id", func(s string) bool { return strings.HasPrefix(c.ID, s) }) &&
		one("status", func(s string) bool { return c.State == s }) &&
		one("ancestor", func(s string) bool { return normal(s) == normal(c.Image) })
}

var idPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

// named is the name of the container that a request is about: by name, or by id.
func (d *Dialect) named(r *http.Request) (string, error) {
	ref := r.PathValue("name")
	if !idPattern.MatchString(ref) {
		return ref, nil
	}
	for _, s := range d.allSidecars() {
		if hexID("sidecar", s.name) == ref {
			return s.name, nil
		}
	}
	all, err := d.containers(r.Context())
	if err != nil {
		return "", err
	}
	for _, c := range all {
		if c.idOf() == ref {
			return c.Name, nil
		}
	}
	return ref, nil
}
