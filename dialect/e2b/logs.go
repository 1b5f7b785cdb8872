package e2b

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// maxLogs is the most entries of a log that are given at once, and the default.
const maxLogs = 1000

// logsFirst gives a sandbox's log, oldest first: what the journal tells of it.
func (d *Dialect) logsFirst(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	from, err := millis(q, "start")
	if err != nil {
		return err
	}
	entries, err := d.journal(r, from, false)
	if err != nil {
		return err
	}
	lines := make([]logLine, 0, len(entries))
	for _, e := range entries {
		lines = append(lines, logLine{e.Timestamp, e.line()})
	}
	writeJSON(w, http.StatusOK, map[string]any{"logs": lines, "logEntries": entries})
	return nil
}

func (d *Dialect) logsSecond(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	from, err := millis(q, "cursor")
	if err != nil {
		return err
	}
	entries, err := d.journal(r, from, q.Get("direction") == "backward")
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, map[string]any{"logs": entries})
	return nil
}

func millis(q url.Values, name string) (time.Time, error) {
	text := q.Get(name)
	if text == "" {
		return time.Time{}, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, invalid(name + " is a time in milliseconds since 1970")
	}
	return time.UnixMilli(n), nil
}

// journal selects from one sandbox's journal. Backward is the newest first, from a
// time on into the past.
func (d *Dialect) journal(r *http.Request, from time.Time, backward bool) ([]logEntry, error) {
	s, err := d.box(r.Context(), r)
	if err != nil {
		return nil, err
	}
	q := r.URL.Query()
	limit := maxLogs
	if text := q.Get("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 0 || limit > maxLogs {
			return nil, invalid(fmt.Sprintf("limit takes 0 to %d", maxLogs))
		}
	}
	all := []logEntry{}
	for query := (sandbox.ChangeQuery{Sandbox: string(s.ID), Limit: 1000}); ; {
		page, err := d.engine.Changes(r.Context(), query)
		if err != nil {
			return nil, err
		}
		for _, c := range page.Events {
			e := entryOfChange(c)
			late := !from.IsZero() && (backward == e.Timestamp.After(from)) && !e.Timestamp.Equal(from)
			if !late && (q.Get("level") == "" || severity(e.Level) >= severity(q.Get("level"))) && strings.Contains(e.Message, q.Get("search")) {
				all = append(all, e)
			}
		}
		if len(page.Events) < query.Limit {
			break
		}
		query.After = page.Next
	}
	if backward {
		slices.Reverse(all)
	}
	return all[:min(limit, len(all))], nil
}

// line is an entry as clients of the first version read it: as JSON.
func (e *logEntry) line() string {
	all := map[string]string{"logger": "sandbox", "level": e.Level, "message": e.Message}
	for k, v := range e.Fields {
		all[k] = v
	}
	b, err := json.Marshal(all)
	if err != nil {
		panic(err) // of strings alone
	}
	return string(b)
}

func severity(level string) int {
	return slices.Index([]string{"debug", "info", "warn", "error"}, level)
}

func entryOfChange(c sandbox.Change) logEntry {
	e := logEntry{Timestamp: c.Time, Level: "info", Message: "sandbox is " + string(c.State), Fields: map[string]string{"type": string(c.Type)}}
	if c.State == sandbox.Failed {
		e.Level = "error"
	}
	if c.Reason != "" {
		e.Message += ": " + c.Reason
	}
	return e
}
