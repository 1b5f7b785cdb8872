package docker

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// maxBody bounds a request's JSON.
const maxBody = 1 << 20

// createBody is what a container is created from, as far as it counts here.
type createBody struct {
	Image      string
	Env        []string
	Cmd        words
	Entrypoint words
	WorkingDir string
	User       string
	Labels     map[string]string
	HostConfig hostConfig
}

type hostConfig struct {
	NetworkMode     string
	PidMode         string
	PublishAllPorts bool
	Mounts          []mount
	Binds           []string
	Privileged      bool
	CapAdd          []string
	Devices         []hostDevice
}

type hostDevice struct{ PathOnHost string }

type mount struct {
	Type, Source, Target string
	ReadOnly             bool
}

// words are a command, of which clients send a single word as it is too.
type words []string

// UnmarshalJSON reads either form.
func (w *words) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*w = nil
		if one != "" {
			*w = words{one}
		}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(w))
}

// inspectBody describes a container.
type inspectBody struct {
	ID      string `json:"Id"`
	Name    string
	Created string
	Image   string
	State   stateBody
	Config  struct {
		Image  string
		Env    []string
		Cmd    []string
		Labels map[string]string
	}
	HostConfig      struct{ NetworkMode, PidMode string }
	NetworkSettings struct {
		Ports map[string][]portBody
	}
	Mounts []mount
}

type stateBody struct {
	Status     string
	Running    bool
	Paused     bool
	Restarting bool
	OOMKilled  bool
	Dead       bool
	Pid        int
	ExitCode   int
	Error      string
	StartedAt  string
	FinishedAt string
}

type portBody struct{ HostIp, HostPort string }

// execBody is what an exec is created from.
type execBody struct {
	Cmd          []string
	Env          []string
	User         string
	WorkingDir   string
	Tty          bool
	AttachStdin  bool
	AttachStdout bool
	AttachStderr bool
	Detach       bool
}

type execStartBody struct {
	Detach bool
	Tty    bool
}

type execInspectBody struct {
	ID          string
	Running     bool
	ExitCode    *int
	Pid         int
	ContainerID string
}

// egressBody is what a sidecar is told of the traffic of its container. What is left
// out stays.
type egressBody struct {
	Port *int `json:"port"`
	DNS  *struct {
		AllowHostnames []string `json:"allowHostnames"`
	} `json:"dns"`
	Internet *struct {
		Enabled *bool `json:"enabled"`
	} `json:"internet"`
}

// readBody reads a request's JSON into v. Fields that are not known are left out:
// clients send many that do not count. An empty body is none.
func readBody(w http.ResponseWriter, r *http.Request, v any) error {
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(v)
	var large *http.MaxBytesError
	switch {
	case err == nil || errors.Is(err, io.EOF):
		return nil
	case errors.As(err, &large):
		return invalid("the body has more than %d bytes", maxBody)
	}
	return &sandbox.Error{Op: "read request", Kind: sandbox.Invalid, Err: err}
}

// moment is a time as this API writes it.
func moment(t time.Time) string {
	if t.IsZero() {
		return "0001-01-01T00:00:00Z"
	}
	return t.UTC().Format(time.RFC3339Nano)
}
