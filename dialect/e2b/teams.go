package e2b

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// team is an account as these clients know it.
type team struct {
	TeamID    string `json:"teamID"`
	Name      string `json:"name"`
	APIKey    string `json:"apiKey"`
	IsDefault bool   `json:"isDefault"`
}

// teamMetric is how many sandboxes a team has at a moment.
type teamMetric struct {
	Timestamp           time.Time `json:"timestamp"`
	TimestampUnix       int64     `json:"timestampUnix"`
	ConcurrentSandboxes int64     `json:"concurrentSandboxes"`
	SandboxStartRate    float64   `json:"sandboxStartRate"` // a second
}

// teams gives the one account that the key is of, with the key that was shown: the
// server could not tell another.
func (d *Dialect) teams(w http.ResponseWriter, r *http.Request) error {
	c, err := sandbox.CallerOf(r.Context())
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, []team{{TeamID: c.Account, Name: c.Account, APIKey: "e2b_" + keyDigits(r), IsDefault: true}})
	return nil
}

// startWindow is over which the rate of starts is taken.
const startWindow = time.Minute

// teamNow counts an account's sandboxes as they are.
func (d *Dialect) teamNow(r *http.Request) (m teamMetric, err error) {
	c, err := sandbox.CallerOf(r.Context())
	if err != nil {
		return m, err
	}
	if id := r.PathValue("team"); id != c.Account {
		return m, &fault{status: http.StatusForbidden, text: "the key is not of the team '" + printable(id) + "'"}
	}
	all, err := d.find(r, listQuery{states: running()})
	if err != nil {
		return m, err
	}
	now := time.Now()
	started := 0
	for _, s := range all {
		if now.Sub(s.Created) < startWindow {
			started++
		}
	}
	return teamMetric{Timestamp: now.UTC(), TimestampUnix: now.Unix(), ConcurrentSandboxes: int64(len(all)), SandboxStartRate: float64(started) / startWindow.Seconds()}, nil
}

func (d *Dialect) teamMetrics(w http.ResponseWriter, r *http.Request) error {
	for _, name := range []string{"start", "end"} {
		if text := r.URL.Query().Get(name); text != "" {
			if _, err := strconv.ParseInt(text, 10, 64); err != nil {
				return invalid(name + " is a time in seconds since 1970")
			}
		}
	}
	m, err := d.teamNow(r)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, []teamMetric{m})
	return nil
}

func (d *Dialect) teamMost(w http.ResponseWriter, r *http.Request) error {
	m, err := d.teamNow(r)
	if err != nil {
		return err
	}
	value := m.SandboxStartRate
	switch name := r.URL.Query().Get("metric"); name {
	case "concurrent_sandboxes":
		value = float64(m.ConcurrentSandboxes)
	case "sandbox_start_rate":
	default:
		return invalid("metric takes concurrent_sandboxes and sandbox_start_rate")
	}
	writeJSON(w, http.StatusOK, map[string]any{"timestamp": m.Timestamp, "timestampUnix": m.TimestampUnix, "value": value})
	return nil
}

// keyDigits are the hex digits of the key that a request shows.
func keyDigits(r *http.Request) string {
	key := r.Header.Get("X-API-Key")
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok && key == "" {
		key = token
	}
	for _, prefix := range []string{apiKeyPrefix, accessTokenPrefix, sandbox.KeyPrefix} {
		if digits, ok := strings.CutPrefix(key, prefix); ok {
			return digits
		}
	}
	return key
}
