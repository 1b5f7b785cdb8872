package e2b

import (
	"cmp"
	"encoding/json"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// apiError is the body of every error of the control API. Clients read the code
// from the body.
type apiError struct {
	Code      int    `json:"code"`
	Message   string `json:"message"`
	ErrorCode string `json:"error_code,omitempty"`
}

// trafficError is the body of an error on the way to a port.
type trafficError struct {
	SandboxID string `json:"sandboxId"`
	Message   string `json:"message"`
	Port      int    `json:"port,omitempty"`
	Code      int    `json:"code"`
}

// newSandbox is the body of a create.
type newSandbox struct {
	TemplateID      string            `json:"templateID"`
	Timeout         *int64            `json:"timeout"` // seconds
	Metadata        map[string]string `json:"metadata"`
	EnvVars         map[string]string `json:"envVars"`
	Secure          *bool             `json:"secure"` // of the first version alone
	AllowInternet   *bool             `json:"allow_internet_access"`
	AutoPause       bool              `json:"autoPause"`
	AutoPauseMemory *bool             `json:"autoPauseMemory"`
	AutoResume      *struct {
		Enabled bool `json:"enabled"`
	} `json:"autoResume"`
	Network      *network        `json:"network"`
	MCP          json.RawMessage `json:"mcp"`
	IAM          json.RawMessage `json:"iam"`
	Sidecars     []any           `json:"sidecars"`
	VolumeMounts []volumeMount   `json:"volumeMounts"`
}

type volumeMount struct {
	Name string `json:"name"`
	Path string `json:"path"`
}

// network is what a sandbox may reach, and how it is reached.
type network struct {
	AllowOut           []string           `json:"allowOut,omitempty"`
	DenyOut            []string           `json:"denyOut,omitempty"`
	AllowPublicTraffic *bool              `json:"allowPublicTraffic,omitempty"`
	MaskRequestHost    string             `json:"maskRequestHost,omitempty"`
	HTTPSPorts         []int              `json:"httpsPorts,omitempty"`
	Rules              map[string][]*rule `json:"rules,omitempty"`
	EgressProxy        json.RawMessage    `json:"egressProxy,omitempty"`
	AllowIn            []string           `json:"allowIn,omitempty"`
	DenyIn             []string           `json:"denyIn,omitempty"`
	AllowInternet      *bool              `json:"allow_internet_access,omitempty"`
}

type rule struct {
	Transform struct {
		Headers map[string]string `json:"headers"`
	} `json:"transform"`
}

// createdSandbox answers a create, a connect and a resume.
type createdSandbox struct {
	SandboxID          string  `json:"sandboxID"`
	TemplateID         string  `json:"templateID"`
	Alias              string  `json:"alias,omitempty"`
	ClientID           string  `json:"clientID"`
	EnvdVersion        string  `json:"envdVersion"`
	EnvdAccessToken    string  `json:"envdAccessToken,omitempty"`
	TrafficAccessToken *string `json:"trafficAccessToken"`
	Domain             *string `json:"domain"`
}

// listedSandbox is one of a list.
type listedSandbox struct {
	SandboxID    string            `json:"sandboxID"`
	TemplateID   string            `json:"templateID"`
	Alias        string            `json:"alias,omitempty"`
	ClientID     string            `json:"clientID"`
	StartedAt    time.Time         `json:"startedAt"`
	EndAt        time.Time         `json:"endAt"`
	State        string            `json:"state"`
	CPUCount     int64             `json:"cpuCount"`
	MemoryMB     int64             `json:"memoryMB"`
	DiskSizeMB   int64             `json:"diskSizeMB"`
	EnvdVersion  string            `json:"envdVersion"`
	Metadata     map[string]string `json:"metadata,omitempty"`
	VolumeMounts []volumeMount     `json:"volumeMounts,omitempty"`
}

// sandboxDetail is one sandbox, with all that is told of it.
type sandboxDetail struct {
	listedSandbox
	EnvdAccessToken     string     `json:"envdAccessToken,omitempty"`
	AllowInternetAccess *bool      `json:"allowInternetAccess"`
	Domain              *string    `json:"domain"`
	Network             *network   `json:"network,omitempty"`
	Lifecycle           *lifecycle `json:"lifecycle,omitempty"`
}

type lifecycle struct {
	OnTimeout  string `json:"onTimeout"`
	AutoResume bool   `json:"autoResume"`
}

// timeoutBody is what a connect, a resume and a change of the timeout say.
type timeoutBody struct {
	Timeout   *int64 `json:"timeout"`
	Duration  *int64 `json:"duration"`
	Memory    *bool  `json:"memory"`
	AutoPause *bool  `json:"autoPause"`
}

// metric is what a sandbox uses at a moment; sizes in bytes.
type metric struct {
	Timestamp     time.Time `json:"timestamp"`
	TimestampUnix int64     `json:"timestampUnix"`
	CPUCount      int64     `json:"cpuCount"`
	CPUUsedPct    float64   `json:"cpuUsedPct"`
	MemUsed       int64     `json:"memUsed"`
	MemTotal      int64     `json:"memTotal"`
	MemCache      int64     `json:"memCache"`
	DiskUsed      int64     `json:"diskUsed"`
	DiskTotal     int64     `json:"diskTotal"`
}

// logEntry is one line of a sandbox's log.
type logEntry struct {
	Timestamp time.Time         `json:"timestamp"`
	Level     string            `json:"level"`
	Message   string            `json:"message"`
	Fields    map[string]string `json:"fields"`
}

type logLine struct {
	Timestamp time.Time `json:"timestamp"`
	Line      string    `json:"line"`
}

// written describes an uploaded file.
type written struct {
	Name     string            `json:"name"`
	Path     string            `json:"path"`
	Type     string            `json:"type"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// envdVersion is the version of the guest's services that this package speaks;
// clients choose what they ask for by it.
const envdVersion = "0.6.13"

// clientID is what no client reads and every one wants.
const clientID = "berth"

func (d *Dialect) created(s sandbox.Sandbox) createdSandbox {
	d.known.add(s.ID)
	out := createdSandbox{SandboxID: string(s.ID), TemplateID: madeFrom(&s), Alias: aliasOf(&s), ClientID: clientID, EnvdVersion: envdVersion}
	if d.secure(&s) {
		out.EnvdAccessToken = d.accessToken(s.ID)
	}
	if private(&s) {
		token := d.trafficToken(s.ID)
		out.TrafficAccessToken = &token
	}
	return out
}

func listed(s sandbox.Sandbox) listedSandbox {
	out := listedSandbox{SandboxID: string(s.ID), TemplateID: madeFrom(&s), Alias: aliasOf(&s), ClientID: clientID, EnvdVersion: envdVersion,
		StartedAt: startOf(s), EndAt: s.Ends(), State: stateOf(s.State), Metadata: visible(s.Metadata),
		CPUCount: max(1, (s.Limits.CPUMilli+999)/1000), MemoryMB: s.Limits.MemoryBytes >> 20, DiskSizeMB: s.Limits.DiskBytes >> 20}
	if out.EndAt.IsZero() { // it does not end by itself: clients want a time all the same
		out.EndAt = out.StartedAt.Add(noEnd)
	}
	return out
}

// aliasOf is the name of a sandbox's template, without its tag.
func aliasOf(s *sandbox.Sandbox) string {
	name, _ := untag(s.Template)
	return name
}

// madeFrom is the template that a sandbox was made from, or the snapshot.
func madeFrom(s *sandbox.Sandbox) string { return cmp.Or(s.Metadata[metaSnapshot], aliasOf(s)) }

// noEnd stands for never.
const noEnd = 100 * 365 * 24 * time.Hour

func startOf(s sandbox.Sandbox) time.Time {
	if s.Started.IsZero() {
		return s.Created
	}
	return s.Started
}

// stateOf is a state as these clients know them: what has failed is gone.
func stateOf(s sandbox.State) string {
	if s == sandbox.Paused || s == sandbox.Stopped {
		return "paused"
	}
	return "running"
}

func (d *Dialect) detail(s sandbox.Sandbox) sandboxDetail {
	out := sandboxDetail{listedSandbox: listed(s), Lifecycle: &lifecycle{OnTimeout: "kill", AutoResume: s.Wake == nil || *s.Wake}}
	if d.secure(&s) {
		out.EnvdAccessToken = d.accessToken(s.ID)
	}
	if s.Lifetime != nil && s.Lifetime.Then() != sandbox.ActRemove {
		out.Lifecycle.OnTimeout = "pause"
	}
	return out
}

// templateInfo describes a template.
type templateInfo struct {
	TemplateID    string     `json:"templateID"`
	BuildID       string     `json:"buildID"`
	Names         []string   `json:"names"`
	Aliases       []string   `json:"aliases"`
	Public        bool       `json:"public"`
	CPUCount      int64      `json:"cpuCount"`
	MemoryMB      int64      `json:"memoryMB"`
	DiskSizeMB    int64      `json:"diskSizeMB"`
	CreatedAt     time.Time  `json:"createdAt"`
	UpdatedAt     time.Time  `json:"updatedAt"`
	CreatedBy     *struct{}  `json:"createdBy"`
	LastSpawnedAt *time.Time `json:"lastSpawnedAt"`
	SpawnCount    int64      `json:"spawnCount"`
	BuildCount    int64      `json:"buildCount"`
	EnvdVersion   string     `json:"envdVersion"`
	BuildStatus   string     `json:"buildStatus"`
}
