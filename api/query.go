package api

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// query reads the parameters of a request. The first thing that is wrong is kept
// until check, which also refuses parameters that nobody asked for.
type query struct {
	values url.Values
	known  []string
	err    error
}

func queryOf(r *http.Request) *query {
	v, err := url.ParseQuery(r.URL.RawQuery)
	q := &query{values: v}
	if err != nil {
		q.fail("", errors.New("it is malformed"), "escape the values, as with curl's --data-urlencode")
	}
	return q
}

// text returns a parameter's only value, or "".
func (q *query) text(name string) string {
	all := q.texts(name)
	if len(all) > 1 {
		q.fail(name, fmt.Errorf("it is given %d times", len(all)), "give it once")
	}
	if len(all) == 0 {
		return ""
	}
	return all[0]
}

// path returns a parameter that names a file. Bytes that are not UTF-8 may come
// escaped, or in base64 under the name with _b64.
func (q *query) path(name string) string {
	text, coded := q.text(name), q.text(name+"_b64")
	if coded == "" {
		return text
	}
	if text != "" {
		q.fail(name, fmt.Errorf("it is given with %s_b64", name), "give one of the two")
	}
	raw, err := base64.RawURLEncoding.DecodeString(strings.NewReplacer("+", "-", "/", "_", "=", "").Replace(coded))
	if err != nil {
		q.fail(name+"_b64", errors.New("it is not base64"), "")
	}
	return string(raw)
}

func (q *query) texts(name string) []string {
	q.known = append(q.known, name)
	return q.values[name]
}

// number returns a parameter in a base, at least 0, or 0 when it is not given.
func (q *query) number(name string, base, bits int) int64 {
	s := q.text(name)
	if s == "" {
		return 0
	}
	n, err := strconv.ParseInt(s, base, bits)
	if err == nil && n >= 0 && s[0] != '+' {
		return n
	}
	form := map[int]string{8: "an octal number", 10: "a whole number"}[base]
	q.fail(name, fmt.Errorf("%.40q is not %s of 0 or more", s, form), "")
	return 0
}

// time returns a moment as RFC 3339 has it, or zero when it is not given.
func (q *query) time(name string) time.Time {
	s := q.text(name)
	if s == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil || t.Year() < 1970 || t.Year() > 9999 {
		q.fail(name, fmt.Errorf("%.40q is no time", s), "give a time such as 2026-05-04T10:00:00Z")
		return time.Time{}
	}
	return t
}

// positive returns a number of 1 or more, or 0 when it is not given.
func (q *query) positive(name string, most int64) int64 {
	n := q.number(name, 10, 64)
	if q.values.Get(name) != "" && (n < 1 || n > most) {
		q.fail(name, fmt.Errorf("%.40q is out of range", q.values.Get(name)),
			fmt.Sprintf("%s takes 1 to %d; leave it out for the default", name, most))
	}
	return n
}

func (q *query) boolean(name string) bool {
	switch s := q.text(name); s {
	case "", "false":
		return false
	case "true":
		return true
	default:
		q.fail(name, fmt.Errorf("%.40q is neither true nor false", s), "")
		return false
	}
}

// prefixed returns the parameters whose names begin with prefix, without it.
func (q *query) prefixed(prefix string) map[string]string {
	var m map[string]string
	for name := range q.values {
		if key, ok := strings.CutPrefix(name, prefix); ok {
			if m == nil {
				m = map[string]string{}
			}
			m[key] = q.text(name)
		}
	}
	return m
}

func (q *query) fail(name string, err error, hint string) {
	if q.err == nil {
		q.err = &sandbox.Error{Op: strings.TrimSpace("read query parameter " + name), Kind: sandbox.Invalid, Err: err, Hint: hint}
	}
}

// check returns the first error, after everything has been asked for.
func (q *query) check() error {
	for name := range q.values {
		if !slices.Contains(q.known, name) {
			q.fail(name, errors.New("it is not known here"), "this route knows "+strings.Join(q.known, ", "))
		}
	}
	return q.err
}
