package sandbox

import (
	"fmt"
	"regexp"
	"slices"
)

// Bounds on tags.
const (
	MaxTags = 32
	MaxTag  = 64 // bytes
)

// Update changes what is kept with a sandbox. Nil fields stay as they are.
type Update struct {
	Metadata   map[string]*string `json:"metadata,omitempty"` // merged; nil removes a key
	Tags       *[]string          `json:"tags,omitempty"`     // replaced
	Env        *map[string]string `json:"env,omitempty"`      // replaced, for processes that start from now on
	Idle       *Idle              `json:"idle,omitempty"`
	Lifetime   *Lifetime          `json:"lifetime,omitempty"`
	Budget     *Budget            `json:"budget,omitempty"`
	Checkpoint *Checkpoint        `json:"checkpoint,omitempty"`
	Wake       *bool              `json:"wake,omitempty"`
	Type       string             `json:"type,omitempty"`   // of instance: its limits, unless Limits says more
	Limits     *Limits            `json:"limits,omitempty"` // zero fields stay as they are, or as the type says
}

// Check reports an error of kind Invalid for the first thing that is wrong, but
// for the limits: what they add to is not known here.
func (u *Update) Check() error {
	if len(u.Metadata) > 2*MaxMetadata {
		return Errorf("check metadata", Invalid, "%d entries, at most %d are taken", len(u.Metadata), MaxMetadata)
	}
	if u.Tags != nil {
		if err := checkTags(*u.Tags); err != nil {
			return err
		}
	}
	if u.Env != nil {
		if err := checkKeptEnv(*u.Env); err != nil {
			return err
		}
	}
	if err := u.Idle.Check(); err != nil {
		return err
	}
	if err := u.Budget.Check(); err != nil {
		return err
	}
	if err := u.Checkpoint.Check(); err != nil {
		return err
	}
	return u.Lifetime.Check()
}

// Merge returns metadata with the update's applied, checked.
func (u *Update) Merge(metadata map[string]string) (map[string]string, error) {
	merged := map[string]string{}
	for k, v := range metadata {
		merged[k] = v
	}
	for k, v := range u.Metadata {
		if v == nil {
			delete(merged, k)
		} else {
			merged[k] = *v
		}
	}
	return merged, checkMetadata(merged)
}

var tagPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/-]*$`)

func checkTags(tags []string) error {
	if len(tags) > MaxTags {
		return Errorf("check tags", Invalid, "%d tags, at most %d are taken", len(tags), MaxTags)
	}
	for i, t := range tags {
		if len(t) > MaxTag || !tagPattern.MatchString(t) || slices.Contains(tags[:i], t) {
			return &Error{Op: "check tags", Kind: Invalid, Err: fmt.Errorf("%.80q is not a tag, or comes twice", t),
				Hint: fmt.Sprintf("a tag has 1 to %d characters of A-Z a-z 0-9 . _ : / - and starts with a letter or a digit", MaxTag)}
		}
	}
	return nil
}

// CheckSandboxName reports an error of kind Invalid unless s can name a sandbox:
// as CheckName, and not of the form of an id.
func CheckSandboxName(s string) error {
	if err := CheckName(s); err != nil {
		return err
	}
	if _, err := ParseID(s); err == nil {
		return &Error{Op: "check name", Kind: Invalid, Err: fmt.Errorf("%q has the form of an id", s),
			Hint: "take a name of another length, or with a dash"}
	}
	return nil
}

// CheckRef reports an error of kind Invalid unless s can stand for a sandbox: an
// id or a name.
func CheckRef(s string) error {
	if _, err := ParseID(s); err == nil {
		return nil
	}
	if CheckSandboxName(s) == nil {
		return nil
	}
	return &Error{Op: "check sandbox", Kind: Invalid, Err: fmt.Errorf("%.80q is neither an id nor a name", s),
		Hint: fmt.Sprintf("an id has %d characters; a name has 1 to 63 of a-z 0-9 . _ - and starts with a letter or a digit", IDLength)}
}
