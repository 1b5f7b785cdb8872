package bridge

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
)

// maxBody bounds a body that is JSON, in bytes.
const maxBody = 4 << 20

// maxPayload bounds a file that is written and an archive that is unpacked, in bytes.
const maxPayload = 32 << 20

type ok struct {
	OK bool `json:"ok"`
}

type problem struct {
	Error string `json:"error"`
	Code  string `json:"code"`
}

type made struct {
	ID string `json:"id"`
}

type runs struct {
	Running bool `json:"running"`
}

type command struct {
	Argv      []string `json:"argv"`
	TimeoutMS float64  `json:"timeout_ms"` // 0: none
	Cwd       string   `json:"cwd"`
}

type exited struct {
	Code int `json:"exit_code"`
}

type newSession struct {
	ID  string            `json:"id"`
	Cwd string            `json:"cwd"`
	Env map[string]string `json:"env"`
}

type endedSession struct {
	Success   bool   `json:"success"`
	SessionID string `json:"sessionId"`
	Timestamp string `json:"timestamp"`
}

type newTunnel struct {
	Name string `json:"name"`
}

type tunnel struct {
	ID        string `json:"id"`
	Port      int    `json:"port"`
	URL       string `json:"url"`
	Hostname  string `json:"hostname"`
	CreatedAt string `json:"createdAt"`
}

type poolStats struct {
	Warm         int        `json:"warm"`
	Assigned     int        `json:"assigned"`
	Total        int        `json:"total"`
	Config       poolConfig `json:"config"`
	MaxInstances *int       `json:"maxInstances"`
}

type poolConfig struct {
	WarmTarget      int `json:"warmTarget"`
	RefreshInterval int `json:"refreshInterval"` // milliseconds
	MaxInstances    int `json:"maxInstances"`
	ScaleBatchSize  int `json:"scaleBatchSize"`
}

// decode reads a request's body into v: one JSON value of at most maxBody bytes. None
// is an error unless optional is set.
func decode(w http.ResponseWriter, r *http.Request, v any, optional bool) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return &fault{status: http.StatusRequestEntityTooLarge, code: codeLarge, text: "the request body is too large"}
	case err != nil:
		return invalid("the request body cannot be read")
	case len(body) == 0 && optional:
		return nil
	}
	var wrong *json.UnmarshalTypeError
	switch err := json.Unmarshal(body, v); {
	case errors.As(err, &wrong) && wrong.Field != "":
		return invalid(printable(wrong.Field) + " must not be a " + wrong.Value)
	case err != nil:
		return invalid("Invalid JSON body")
	}
	return nil
}
