package sandbox

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// MaxSandboxEnvBytes bounds the environment that is kept with a sandbox: names
// and values, all together.
const MaxSandboxEnvBytes = 64 << 10

// Bounds on a page of sandboxes.
const (
	DefaultPage = 100
	MaxPage     = 1000
)

var digestPattern = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// Check reports an error of kind Invalid for the first thing that is wrong. It
// does not look at Limits: their defaults are not in yet.
func (r *CreateRequest) Check() error {
	if r.Template != "" && !digestPattern.MatchString(r.Template) {
		if err := CheckName(r.Template); err != nil {
			return &Error{Op: "check template", Err: err}
		}
	}
	if r.Snapshot != "" {
		if err := CheckRef(r.Snapshot); err != nil {
			return err
		}
	}
	if err := checkKeptEnv(r.Env); err != nil {
		return err
	}
	if err := r.checkName(); err != nil {
		return err
	}
	if err := checkMounts(r.Volumes); err != nil {
		return err
	}
	if err := checkTags(r.Tags); err != nil {
		return err
	}
	if err := r.Idle.Check(); err != nil {
		return err
	}
	if err := r.Lifetime.Check(); err != nil {
		return err
	}
	if err := r.Policy.Check(); err != nil {
		return err
	}
	if err := r.Budget.Check(); err != nil {
		return err
	}
	if err := r.Checkpoint.Check(); err != nil {
		return err
	}
	return checkMetadata(r.Metadata)
}

// checkKeptEnv is CheckEnv for what is kept with a sandbox.
func checkKeptEnv(env map[string]string) error {
	if err := CheckEnv(env); err != nil {
		return err
	}
	size := 0
	for k, v := range env {
		size += len(k) + len(v) + 2
	}
	if size > MaxSandboxEnvBytes {
		return &Error{Op: "check environment", Kind: Invalid,
			Err:  fmt.Errorf("it has %d bytes, at most %d are kept with a sandbox", size, MaxSandboxEnvBytes),
			Hint: "give large values with the command, or in a file"}
	}
	return nil
}

func (r *CreateRequest) checkName() error {
	if r.Name != "" {
		return CheckSandboxName(r.Name)
	}
	if r.Get {
		return &Error{Op: "check name", Kind: Invalid, Err: errors.New("get needs a name"), Hint: "give the name of the sandbox to get or create"}
	}
	return nil
}

func checkMetadata(m map[string]string) error {
	if len(m) > MaxMetadata {
		return Errorf("check metadata", Invalid, "%d entries, at most %d are taken", len(m), MaxMetadata)
	}
	for k, v := range m {
		switch {
		case k == "" || len(k) > MaxMetadataKey:
			return Errorf("check metadata", Invalid, "the key %.40q has %d bytes, 1 to %d are taken", k, len(k), MaxMetadataKey)
		case len(v) > MaxMetadataValue:
			return Errorf("check metadata", Invalid, "the value of %q has %d bytes, at most %d are taken", k, len(v), MaxMetadataValue)
		}
	}
	return nil
}

// Check reports an error of kind Invalid for the first thing that is wrong,
// the cursor left out: only its maker knows its form.
func (q *ListQuery) Check() error {
	if q.Limit < 0 || q.Limit > MaxPage {
		return &Error{Op: "check list query", Kind: Invalid, Err: fmt.Errorf("limit is %d", q.Limit),
			Hint: fmt.Sprintf("limit takes 1 to %d; leave it out for %d", MaxPage, DefaultPage)}
	}
	for _, s := range q.States {
		if !s.Valid() {
			return &Error{Op: "check list query", Kind: Invalid, Err: fmt.Errorf("%.40q is not a state", s),
				Hint: fmt.Sprintf("the states are %v", States())}
		}
	}
	if err := checkTags(q.Tags); err != nil {
		return err
	}
	return checkMetadata(q.Metadata)
}

// buildSources are the forms of BuildRequest.From, before the colon.
var buildSources = []string{"distribution", "oci", "oci-archive", "docker-archive"}

// Check reports an error of kind Invalid for the first thing that is wrong.
func (r *BuildRequest) Check() error {
	if len(r.Also) > MaxBuildNames {
		return Errorf("check build", Invalid, "%d other names, at most %d are taken", len(r.Also), MaxBuildNames)
	}
	for _, name := range append([]string{r.Name}, r.Also...) {
		if err := CheckName(name); err != nil {
			return err
		}
	}
	if err := errors.Join(r.Policy.Check(), r.Policy.CheckNoValues()); err != nil {
		return err
	}
	if err := r.checkStaged(); err != nil {
		return err
	}
	if r.Login != nil {
		if err := r.Login.check(r); err != nil {
			return err
		}
	}
	if r.Dockerfile != "" || r.From == FromScratch {
		return nil
	}
	form, what, _ := strings.Cut(r.From, ":")
	if form == "template" {
		return CheckName(what)
	}
	if !slices.Contains(buildSources, form) || what == "" {
		return &Error{Op: "check source", Kind: Invalid, Err: fmt.Errorf("%.200q is not a source of templates", r.From),
			Hint: "a source is distribution:<suite>, oci:<reference>, oci-archive:<path>, docker-archive:<path>, template:<name> or scratch"}
	}
	if strings.HasSuffix(form, "-archive") {
		return CheckPath(what)
	}
	return nil
}
