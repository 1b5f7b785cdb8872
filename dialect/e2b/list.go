package e2b

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// maxPage is the most that one page holds, and its default.
const maxPage = 100

// listQuery selects sandboxes.
type listQuery struct {
	metadata map[string]string
	states   []sandbox.State
	after    time.Time // started then or later; zero: any
	template string
	oldest   bool // first
	limit    int
	next     string // place of the last one that the client has
}

// listFirst is the first version of the list: all that run, in one page.
func (d *Dialect) listFirst(w http.ResponseWriter, r *http.Request) error {
	q := listQuery{states: running()}
	var err error
	if q.metadata, err = metadataQuery(r.URL.Query().Get("metadata")); err != nil {
		return err
	}
	all, err := d.find(r, q)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, listedAll(all))
	return nil
}

func (d *Dialect) listSecond(w http.ResponseWriter, r *http.Request) error {
	q, err := parseList(r.URL.Query())
	if err != nil {
		return err
	}
	all, err := d.find(r, q)
	if err != nil {
		return err
	}
	count := 0
	for _, s := range all {
		if stateOf(s.State) == "running" {
			count++
		}
	}
	w.Header().Set("X-Total-Running", strconv.Itoa(count))
	page, next := q.page(all)
	if next != "" {
		w.Header().Set("X-Next-Token", next)
	}
	writeJSON(w, http.StatusOK, listedAll(page))
	return nil
}

func listedAll(all []sandbox.Sandbox) []listedSandbox {
	out := make([]listedSandbox, 0, len(all))
	for _, s := range all {
		out = append(out, listed(s))
	}
	return out
}

func running() []sandbox.State { return []sandbox.State{sandbox.Running} }
func aside() []sandbox.State   { return []sandbox.State{sandbox.Paused, sandbox.Stopped} }

func parseList(v url.Values) (q listQuery, err error) {
	if q.metadata, err = metadataQuery(v.Get("metadata")); err != nil {
		return q, err
	}
	q.template, q.limit = templateName(v.Get("template")), maxPage
	for _, part := range v["state"] {
		for name := range strings.SplitSeq(part, ",") {
			switch name {
			case "running":
				q.states = append(q.states, running()...)
			case "paused":
				q.states = append(q.states, aside()...)
			default:
				return q, invalid(fmt.Sprintf("state %q is none of running and paused", printable(name)))
			}
		}
	}
	if len(q.states) == 0 {
		q.states = append(running(), aside()...)
	}
	if text := v.Get("limit"); text != "" {
		if q.limit, err = strconv.Atoi(text); err != nil || q.limit < 1 || q.limit > maxPage {
			return q, invalid(fmt.Sprintf("limit takes 1 to %d", maxPage))
		}
	}
	if text := v.Get("startedAfter"); text != "" {
		if q.after, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return q, invalid("startedAfter is no time of RFC 3339")
		}
	}
	switch order := v.Get("order"); order {
	case "", "desc":
	case "asc":
		q.oldest = true
	default:
		return q, invalid("order takes asc and desc")
	}
	if token := v.Get("nextToken"); token != "" {
		b, err := base64.RawURLEncoding.DecodeString(token)
		if err != nil || !placePattern.Match(b) {
			return q, invalid("nextToken is not one that this server gave")
		}
		q.next = string(b)
	}
	return q, nil
}

// metadataQuery reads k=v&k=v whose keys and values are escaped once more.
func metadataQuery(text string) (map[string]string, error) {
	if text == "" {
		return nil, nil
	}
	values, err := url.ParseQuery(text)
	if err != nil {
		return nil, invalid("metadata is no query of key=value pairs")
	}
	out := map[string]string{}
	for k, all := range values {
		key, err := url.PathUnescape(k)
		if err != nil {
			return nil, invalid("metadata: " + err.Error())
		}
		if out[key], err = url.PathUnescape(all[0]); err != nil {
			return nil, invalid("metadata: " + err.Error())
		}
	}
	return out, nil
}

// find returns all that a query selects, in its order.
func (d *Dialect) find(r *http.Request, q listQuery) ([]sandbox.Sandbox, error) {
	var all []sandbox.Sandbox
	eq := sandbox.ListQuery{States: q.states, Metadata: q.metadata, Limit: 1000}
	for {
		page, err := d.engine.List(r.Context(), eq)
		if err != nil {
			return nil, err
		}
		for _, s := range page.Sandboxes {
			if q.of(&s) && (q.after.IsZero() || !startOf(s).Before(q.after)) {
				all = append(all, s)
			}
		}
		if eq.After = page.Next; page.Next == "" {
			break
		}
	}
	slices.SortFunc(all, func(a, b sandbox.Sandbox) int { return strings.Compare(place(a), place(b)) })
	if !q.oldest {
		slices.Reverse(all)
	}
	return all, nil
}

// of reports whether a sandbox is of the template, the tag or the snapshot that is
// asked for.
func (q *listQuery) of(s *sandbox.Sandbox) bool {
	return slices.Contains([]string{"", s.Template, aliasOf(s), madeFrom(s)}, q.template)
}

var placePattern = regexp.MustCompile(`^[0-9]{20}-[a-z0-9]{20}$`)

// place orders sandboxes by their start, and tells any two apart.
func place(s sandbox.Sandbox) string {
	return fmt.Sprintf("%020d-%s", startOf(s).UnixNano(), s.ID)
}

// page cuts the page that follows next out of all, and says how the one after it
// is asked for.
func (q listQuery) page(all []sandbox.Sandbox) (page []sandbox.Sandbox, next string) {
	if q.next != "" {
		all = slices.DeleteFunc(slices.Clone(all), func(s sandbox.Sandbox) bool {
			if c := strings.Compare(place(s), q.next); q.oldest {
				return c <= 0
			} else {
				return c >= 0
			}
		})
	}
	if len(all) <= q.limit {
		return all, ""
	}
	page = all[:q.limit]
	return page, base64.RawURLEncoding.EncodeToString([]byte(place(page[len(page)-1])))
}
