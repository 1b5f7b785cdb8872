package docker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/berth-dev/berth/sandbox"
)

// What of a container stands with its sandbox.
const (
	metaState = "cloudflare.container" // state, as JSON
	tagMade   = "cloudflare-container"
)

// phase is where a container stands, as its maker sees it.
type phase string

const (
	created phase = "created"
	running phase = "running"
	exited  phase = "exited"
)

// state is what is kept of a container.
type state struct {
	Name    string            `json:"name"`
	Image   string            `json:"image"`
	Phase   phase             `json:"phase"`
	Code    int               `json:"code,omitempty"` // with which it exited
	Argv    []string          `json:"argv,omitempty"` // ENTRYPOINT and CMD
	Server  bool              `json:"server,omitempty"`
	Process string            `json:"process,omitempty"` // that Argv became, while it lives
	GoesOn  bool              `json:"goes_on,omitempty"` // its sandbox keeps the memory of the container before
	Dir     string            `json:"dir,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	User    string            `json:"user,omitempty"`
	Started time.Time         `json:"started,omitzero"`
	Ended   time.Time         `json:"ended,omitzero"`
	Gone    bool              `json:"gone,omitempty"`    // it was removed: its sandbox waits for the next of its name
	Revived bool              `json:"revived,omitempty"` // it seems to run, and its sandbox has slept since before
	Doubt   bool              `json:"doubt,omitempty"`   // it was removed while it seemed to run
	Owner   *owner            `json:"owner,omitempty"`   // who has it run; nil if that is not known
	Proxy   *proxy            `json:"proxy,omitempty"`   // its sidecar
}

// proxy is what is kept of a sidecar.
type proxy struct {
	Name   string            `json:"name"`
	Image  string            `json:"image,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	Port   int               `json:"port"` // of the loopback, on which it listens
	Egress Route             `json:"egress"`
}

// container is a container with its sandbox.
type container struct {
	state
	box sandbox.Sandbox
}

// nameBytes bounds a container's name.
const nameBytes = 512

var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)

// checkName reports an error of kind Invalid unless s can name a container.
func checkName(s string) error {
	if len(s) > nameBytes || !namePattern.MatchString(s) {
		return &sandbox.Error{Op: "check container", Kind: sandbox.Invalid, Err: fmt.Errorf("%.80q is not a container's name", s),
			Hint: "a name has 2 to 512 characters of A-Z a-z 0-9 _ . - and starts with a letter or a digit"}
	}
	return nil
}

// boxName is the name of a container's sandbox: containers have longer ones.
func boxName(name string) string {
	sum := sha256.Sum256([]byte(name))
	return "container-" + hex.EncodeToString(sum[:16])
}

// idOf is a container's id.
func (c *container) idOf() string { return hexID("container", string(c.box.ID)) }

func hexID(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])
}

// load returns a container, or NotFound.
func (d *Dialect) load(ctx context.Context, name string) (*container, error) {
	c, err := d.find(ctx, name)
	if err == nil && c.Gone {
		return nil, noContainer(name)
	}
	return c, err
}

// find is load that returns one too of which only the sandbox is left.
func (d *Dialect) find(ctx context.Context, name string) (*container, error) {
	if checkName(name) != nil {
		return nil, noContainer(name)
	}
	s, err := d.engine.Get(ctx, boxName(name))
	if sandbox.KindOf(err) == sandbox.NotFound {
		return nil, noContainer(name)
	}
	if err != nil {
		return nil, err
	}
	c, err := containerOf(s)
	if err == nil && c.Name != name {
		return nil, noContainer(name)
	}
	return c, err
}

// containerOf reads what stands with a sandbox.
func containerOf(s sandbox.Sandbox) (*container, error) {
	c := &container{box: s}
	text := s.Metadata[metaState]
	for i := 1; i < maxPieces; i++ {
		more, ok := s.Metadata[piece(i)]
		if !ok {
			break
		}
		text += more
	}
	if err := json.Unmarshal([]byte(text), &c.state); err != nil {
		return nil, &sandbox.Error{Op: "read container", ID: s.ID, Kind: sandbox.Conflict, Err: err,
			Hint: "its sandbox was made or changed by somebody else: remove it with berth rm"}
	}
	if c.Phase == running && (s.State == sandbox.Stopped || s.State == sandbox.Failed) { // from elsewhere
		c.Phase, c.Code, c.Ended = exited, killed, s.Updated
	}
	return c, nil
}

// save writes down what has changed of a container, and tells those who wait.
func (d *Dialect) save(ctx context.Context, c *container) error {
	pieces, err := c.encode()
	if err != nil {
		return err
	}
	change := map[string]*string{}
	for k, v := range pieces {
		change[k] = &v
	}
	for i := len(pieces); i < maxPieces && i > 0; i++ {
		if _, ok := c.box.Metadata[piece(i)]; !ok {
			break
		}
		change[piece(i)] = nil
	}
	s, err := d.engine.Update(ctx, string(c.box.ID), sandbox.Update{Metadata: change})
	if err != nil {
		return err
	}
	c.box = s
	d.news.post(c.Name)
	return nil
}

// maxPieces bounds the entries of metadata that what is kept of a container takes:
// one of them is too short for long commands and many hosts.
const maxPieces = 32

func piece(i int) string {
	if i == 0 {
		return metaState
	}
	return metaState + "." + strconv.Itoa(i)
}

// encode writes what is kept of a container as entries of metadata.
func (s *state) encode() (map[string]string, error) {
	b, err := json.Marshal(s)
	if err != nil {
		return nil, sandbox.Errorf("encode container", sandbox.Internal, "%w", err)
	}
	const most = maxPieces * sandbox.MaxMetadataValue
	if len(b) > most {
		return nil, &sandbox.Error{Op: "keep container", Kind: sandbox.Invalid, Err: fmt.Errorf("its command and hosts have %d bytes, at most %d are kept", len(b), most),
			Hint: "put a long command into a script of the image"}
	}
	all := map[string]string{}
	for i := 0; len(b) > 0; i++ {
		n := min(len(b), sandbox.MaxMetadataValue)
		for n > 0 && n < len(b) && !utf8.RuneStart(b[n]) {
			n--
		}
		all[piece(i)], b = string(b[:n]), b[n:]
	}
	return all, nil
}
