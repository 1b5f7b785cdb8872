package sandbox

// CreateRequest asks for a new sandbox. Zero fields mean the defaults.
type CreateRequest struct {
	Template   string            `json:"template,omitempty"` // name, or "sha256:…" of its root image
	Class      string            `json:"class,omitempty"`    // isolation class; "" means the server's default
	Snapshot   string            `json:"snapshot,omitempty"` // id or name: it goes on from there, with that one's template, class, limits and environment
	Name       string            `json:"name,omitempty"`     // see CheckSandboxName; taken by a living one is Conflict
	Get        bool              `json:"get,omitempty"`      // if a living sandbox has the name, return that one as it is
	Type       string            `json:"type,omitempty"`     // of instance: limits for those that are left out
	Limits     Limits            `json:"limits,omitzero"`
	Env        map[string]string `json:"env,omitempty"`
	Metadata   map[string]string `json:"metadata,omitempty"`
	Tags       []string          `json:"tags,omitempty"`
	Idle       *Idle             `json:"idle,omitempty"`       // nil: never idle
	Lifetime   *Lifetime         `json:"lifetime,omitempty"`   // nil: no end
	Policy     *Policy           `json:"policy,omitempty"`     // of what it may reach; nil: DefaultPolicy
	Checkpoint *Checkpoint       `json:"checkpoint,omitempty"` // nil: none are taken
	Budget     *Budget           `json:"budget,omitempty"`     // nil: no bound
	Wake       *bool             `json:"wake,omitempty"`       // nil means true
	Volumes    []VolumeMount     `json:"volumes,omitempty"`    // those of a snapshot if one is named; then no others
}

// Bounds on what a caller may store with a sandbox.
const (
	MaxMetadata      = 64   // entries
	MaxMetadataKey   = 128  // bytes
	MaxMetadataValue = 4096 // bytes
)

// ListQuery selects sandboxes. They come newest first.
type ListQuery struct {
	States   []State           // any of these; none means all
	Template string            // "" means any
	Metadata map[string]string // all of these, equal
	Tags     []string          // all of these
	Name     string            // "" means any
	After    string            // cursor: Next of the page before
	Limit    int               // 1 to 1000; 0 means 100
}

// Page is one page of a list.
type Page struct {
	Sandboxes []Sandbox `json:"sandboxes"`
	Next      string    `json:"next,omitempty"` // cursor of the next page; "" at the end
}

// BuildRequest asks for a template.
type BuildRequest struct {
	Name  string   `json:"name"`            // of the template to make or replace
	Also  []string `json:"also,omitempty"`  // its other names, made or replaced once it is ready; at most MaxBuildNames
	From  string   `json:"from,omitempty"`  // "distribution:bookworm", "oci:<reference>", "oci-archive:<path on the server>", "docker-archive:<path>", "template:<name>", "scratch"
	Force bool     `json:"force,omitempty"` // build although nothing changed
	Login *Login   `json:"login,omitempty"` // for the registry of a private image; nil: the server's own, if it has any

	Policy *Policy `json:"policy,omitempty"` // of sandboxes that give none; nil: DefaultPolicy

	Steps      []BuildStep       `json:"steps,omitempty"`      // done to what From gives
	User       string            `json:"user,omitempty"`       // who runs the steps and the sandboxes' processes until a step says otherwise; "" means what From says
	Workdir    string            `json:"workdir,omitempty"`    // where they run; "" means the same
	Dockerfile string            `json:"dockerfile,omitempty"` // its text, in place of From and Steps
	Target     string            `json:"target,omitempty"`     // the Dockerfile's stage; "" means the last
	Args       map[string]string `json:"args,omitempty"`       // of the Dockerfile
	Context    string            `json:"context,omitempty"`    // an uploaded tar stream, for copies

	// Images says which templates stand for images that the Dockerfile names.
	Images map[string]string `json:"images,omitempty"`

	// Hold keeps the Dockerfile's ENTRYPOINT and CMD, and those of the template that
	// it begins with, as the new one's: they do not run when it is made. Entrypoint
	// and Cmd are kept likewise, in their place.
	Hold       bool     `json:"hold,omitempty"`
	Entrypoint []string `json:"entrypoint,omitempty"`
	Cmd        []string `json:"cmd,omitempty"`

	// Start is a line for bash that runs when the template is made, and goes on in
	// every sandbox of it. Ready is asked again and again until it ends with 0;
	// without it the template is ready once Start has ended or lived for some time.
	Start        string `json:"start,omitempty"`
	Ready        string `json:"ready,omitempty"`
	ReadySeconds int64  `json:"ready_seconds,omitempty"` // 0 means DefaultReady

	Limits *Limits `json:"limits,omitempty"` // of the template's sandboxes that ask for no other
}

// Progress is one step of long work. Total 0 means unknown.
type Progress struct {
	Step  string `json:"step"`            // "install packages"
	Done  int64  `json:"done,omitempty"`  // of Total, in Unit
	Total int64  `json:"total,omitempty"` //
	Unit  string `json:"unit,omitempty"`  // "bytes", "packages", ""
	Log   string `json:"log,omitempty"`   // a line of the builder's own output
}

// ReadRange is the part of a file to read. Length 0 means to the end.
type ReadRange struct {
	Offset int64
	Length int64
}

// Events is a stream of a process's events. Recv returns io.EOF after the last
// one (Exit); any other error means that the stream broke and the process may
// live on. Close ends the stream early and may be called at any time, twice too.
type Events interface {
	Recv() (Event, error)
	Close() error
}
