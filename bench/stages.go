package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// stages is, for each stage of a verb, how often it was taken and how long in all, in
// seconds, since the server began.
type stages map[string]struct{ count, sum float64 }

// stagesOf reads them from the server's metrics.
func (s *server) stagesOf(ctx context.Context, verb string) (stages, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+s.key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("read metrics: %s", resp.Status)
	}
	all := stages{}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		rest, ok := strings.CutPrefix(lines.Text(), "berth_verb_seconds_")
		kind, rest, _ := strings.Cut(rest, `{stage="`)
		stage, rest, _ := strings.Cut(rest, `",verb="`)
		of, value, _ := strings.Cut(rest, `"} `)
		if !ok || of != verb {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return nil, fmt.Errorf("read metrics: %w", err)
		}
		at := all[stage]
		switch kind {
		case "sum":
			at.sum = v
		case "count":
			at.count = v
		}
		all[stage] = at
	}
	return all, lines.Err()
}

// since gives the mean of each stage, in the order named, since earlier ones were read.
func (s stages) since(earlier stages, names ...string) (rows []row) {
	for _, n := range names {
		if times := s[n].count - earlier[n].count; times > 0 {
			rows = append(rows, row{Name: "  of it, " + n + ", mean", Unit: "ms", Value: (s[n].sum - earlier[n].sum) / times * 1000, Samples: int(times)})
		}
	}
	return rows
}
