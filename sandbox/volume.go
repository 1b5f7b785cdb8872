package sandbox

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Bounds on volumes.
const (
	MaxVolumes    = 256      // of an account
	MaxMounts     = 16       // volumes of one sandbox
	MinVolume     = 16 << 20 // bytes
	MaxVolume     = 1 << 40  //
	DefaultVolume = 10 << 30 // of one that does not say
)

// Volume is a folder that outlives sandboxes and that several may share at the same
// time. It is no part of their snapshots and forks: those see what is in it now.
type Volume struct {
	ID        ID        `json:"id"`
	Name      string    `json:"name"` // the owner's own; one volume of the account has it
	Account   string    `json:"account"`
	SizeBytes int64     `json:"size_bytes"` // that fit at most
	Created   time.Time `json:"created"`
}

// VolumeRequest asks for a volume.
type VolumeRequest struct {
	Name      string `json:"name"`
	SizeBytes int64  `json:"size_bytes,omitempty"` // 0 means DefaultVolume
}

// VolumeMount is a volume's place in a sandbox.
type VolumeMount struct {
	Volume   string `json:"volume"` // id or name; of a sandbox that is there, its id
	Path     string `json:"path"`   // absolute; made if it is not there
	ReadOnly bool   `json:"read_only,omitempty"`
}

var volumeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)

// CheckVolumeName reports an error of kind Invalid unless s can name a volume: 1 to
// 63 characters of [A-Za-z0-9_.-], the first a letter or a digit.
func CheckVolumeName(s string) error {
	if !volumeName.MatchString(s) {
		return &Error{Op: "check volume", Kind: Invalid, Err: fmt.Errorf("%.80q is not a volume's name", s),
			Hint: "a name has 1 to 63 characters of A-Z a-z 0-9 _ . - and starts with a letter or a digit"}
	}
	return nil
}

// Check reports an error of kind Invalid for the first thing that is wrong.
func (r *VolumeRequest) Check() error {
	if r.SizeBytes != 0 && (r.SizeBytes < MinVolume || r.SizeBytes > MaxVolume) {
		return Errorf("check volume", Invalid, "size_bytes is %d, %d to %d are taken", r.SizeBytes, MinVolume, MaxVolume)
	}
	return CheckVolumeName(r.Name)
}

// closedToVolumes is where no volume may be mounted: what the sandbox itself is made
// of.
var closedToVolumes = []string{"/", "/proc", "/sys", "/dev", "/.berth", "/bin", "/sbin", "/lib", "/lib64", "/usr", "/etc", "/run", "/tmp", "/var", "/boot", "/root", "/home"}

// checkMounts checks the volumes of a request.
func checkMounts(all []VolumeMount) error {
	const op = "check volumes"
	if len(all) > MaxMounts {
		return Errorf(op, Invalid, "%d volumes, at most %d are taken", len(all), MaxMounts)
	}
	var places []string
	for _, m := range all {
		if _, err := ParseID(m.Volume); err != nil {
			if err := CheckVolumeName(m.Volume); err != nil {
				return err
			}
		}
		if err := CheckPath(m.Path); err != nil {
			return err
		}
		p := path.Clean(m.Path)
		first := "/" + strings.SplitN(p[1:], "/", 2)[0]
		if slices.Contains(closedToVolumes, p) || slices.Contains(closedToVolumes[1:5], first) {
			return &Error{Op: op, Kind: Invalid, Err: fmt.Errorf("%.80q is the sandbox's own", m.Path), Hint: "mount it at a folder such as /data or /workspace/data"}
		}
		for _, other := range places {
			if p == other || strings.HasPrefix(p, other+"/") || strings.HasPrefix(other, p+"/") {
				return &Error{Op: op, Kind: Invalid, Err: errors.New("two volumes lie on one another"), Hint: "give each a folder of its own"}
			}
		}
		places = append(places, p)
	}
	return nil
}

// VolumeEntry describes an entry of a volume.
type VolumeEntry struct {
	Name     string    `json:"name"`
	Path     string    `json:"path"` // absolute, in the volume
	Type     FileType  `json:"type"`
	Size     int64     `json:"size"` // bytes
	Mode     uint32    `json:"mode"` // permission bits with setuid, setgid, sticky: 0 to 07777
	UID      uint32    `json:"uid"`
	GID      uint32    `json:"gid"`
	Accessed time.Time `json:"accessed"`
	Modified time.Time `json:"modified"`
	Changed  time.Time `json:"changed"`          // when what this tells last changed
	Target   string    `json:"target,omitempty"` // of a symbolic link
}

// VolumeAttributes are what may be set of an entry; nil leaves it as it is, or of a
// new entry: 1000, 1000, and 0644 or 0755.
type VolumeAttributes struct {
	UID  *uint32 `json:"uid,omitempty"`
	GID  *uint32 `json:"gid,omitempty"`
	Mode *uint32 `json:"mode,omitempty"` // 0 to 07777
}

// WithDefaults fills in what is left out.
func (a VolumeAttributes) WithDefaults(owner, mode uint32) VolumeAttributes {
	if a.UID == nil {
		a.UID = &owner
	}
	if a.GID == nil {
		a.GID = &owner
	}
	if a.Mode == nil {
		a.Mode = &mode
	}
	return a
}
