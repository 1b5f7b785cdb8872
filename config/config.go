// Package config reads the file that a server is configured with.
//
// The file is TOML: it has no anchors, no implicit types and no indentation to get
// wrong, and its parser tells lines. A key that is not known is an error.
package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/berth-dev/berth/sandbox"
)

// maxFile bounds a file, in bytes.
const maxFile = 1 << 20

// File is what a file may say. What it leaves out is zero: the default.
type File struct {
	Listen    string   `toml:"listen"`     // address of the server, as --listen
	Domain    string   `toml:"domain"`     // of the server and its sandboxes, as --domain
	URL       string   `toml:"url"`        // where clients reach the server; links begin with it
	LogFormat string   `toml:"log_format"` // text or json
	LogLevel  string   `toml:"log_level"`  // debug, info, warn or error
	Drain     Duration `toml:"drain"`      // how long requests may go on after a signal to stop

	Limits    Limits    `toml:"limits"`
	Types     []Type    `toml:"types"`
	Quota     Quota     `toml:"quota"`
	Temporary Temporary `toml:"temporary"`
	Webhooks  Webhooks  `toml:"webhooks"`
	Prices    Prices    `toml:"prices"`
	Metrics   Metrics   `toml:"metrics"`
	Room      Room      `toml:"room"`
	Snapshots Snapshots `toml:"snapshots"`
	Store     Store     `toml:"store"`
	HTTPS     HTTPS     `toml:"https"`
	ACME      ACME      `toml:"acme"`
	Egress    Egress    `toml:"egress"`
	Audit     Audit     `toml:"audit"`

	Containers Containers `toml:"containers"`
}

// Containers says how sandboxes are started as containers.
type Containers struct {
	Socket string `toml:"socket"` // path of the Docker Engine's socket; "" serves none
	Type   string `toml:"type"`   // of instance; "" means the default
	Forget bool   `toml:"forget"` // one that was stopped begins anew: its files and processes are lost

	Keep   Duration `toml:"keep"`   // how long one that was stopped is kept; 0 means a week
	Orphan Duration `toml:"orphan"` // how long one is left alone whose maker's process has ended; 0 means an hour

	Bridge string `toml:"bridge"` // template of sandboxes that are made through the bridge; "" means the one that mounts buckets where there is one, else the default
}

// Limits are of the server.
type Limits struct {
	Creates int      `toml:"creates"` // sandboxes that are made at once
	Queue   int      `toml:"queue"`   // that may wait for that
	Wake    Duration `toml:"wake"`    // how long a call waits for its sandbox to wake
	Forks   int      `toml:"forks"`   // children of one fork
	Events  int      `toml:"events"`  // entries that the journal keeps
	Engines *int     `toml:"engines"` // that wait ahead of forks, wakes and creates, 0 to 1000, as --engines; left out, 3 for each of --warm
}

// Type is an instance type. One of a name that there is takes its place.
type Type struct {
	Name      string `toml:"name"`
	CPUMilli  int64  `toml:"cpu_milli"`
	Memory    Size   `toml:"memory"`
	Disk      Size   `toml:"disk"`
	Processes int64  `toml:"processes"`
	OpenFiles int64  `toml:"open_files"`
	Files     int64  `toml:"files"`
}

// Quota bounds what an account uses at once; 0 is no bound.
type Quota struct {
	Sandboxes  int64 `toml:"sandboxes"`
	CPUMilli   int64 `toml:"cpu_milli"`
	Memory     Size  `toml:"memory"`
	Disk       Size  `toml:"disk"`
	Snapshots  Size  `toml:"snapshots"`
	ForkAtOnce int64 `toml:"fork_at_once"`
}

// Temporary says how accounts are made without sign-up.
type Temporary struct {
	Enabled  bool     `toml:"enabled"`
	Lifetime Duration `toml:"lifetime"`  // until one that nobody claims is removed
	Hourly   int      `toml:"hourly"`    // for one address
	Most     int      `toml:"most"`      // alive at once
	WorkBits int      `toml:"work_bits"` // of proof of work; 0 asks for none
	Quota    Quota    `toml:"quota"`
}

// Webhooks says where webhooks may be sent beside the public internet.
type Webhooks struct {
	Allow []Prefix `toml:"allow"` // addresses
}

// Prices are decimal numbers of dollars, in quotes. "" means the default.
type Prices struct {
	CPU    string `toml:"cpu_second"`
	Memory string `toml:"memory_gib_second"`
	Disk   string `toml:"disk_gb_second"`
	Egress string `toml:"egress_gb"`
}

// Metrics says who may read /metrics.
type Metrics struct {
	Public bool `toml:"public"` // everybody; left out, whoever has the operator's key
}

// Room is what must stay free of the disk that holds the data: the more of the
// two. Below it nothing is begun that needs room.
type Room struct {
	Free    Size   `toml:"free"`    // bytes; 0 means 2 GiB
	Percent *int64 `toml:"percent"` // 0 to 90; left out, 5
}

// Store is a file system of its own for what sandboxes write, for disks that cannot
// share files copy-on-write.
type Store struct {
	Size Size `toml:"size"` // taken from the disk at once; 0 makes none
}

// Snapshots says where snapshots and backups are kept.
type Snapshots struct {
	Blobs string `toml:"blobs"` // a folder, or s3://bucket/prefix, as --blobs
	Cache Size   `toml:"cache"` // disk for unpacked ones that nobody uses, as --snapshot-cache
	Key   string `toml:"key"`   // file of the key that seals what is kept, as --snapshot-key; none: nothing is sealed
}

// DefaultTemporaryQuota is what a temporary account may use unless the file says
// otherwise.
func DefaultTemporaryQuota() sandbox.Quota {
	return sandbox.Quota{Sandboxes: 2, CPUMilli: 2000, MemoryBytes: 4 << 30, DiskBytes: 16 << 30, SnapshotBytes: 4 << 30, ForkAtOnce: 2}
}

// Read reads and checks the file at path.
func Read(path string) (File, error) {
	f, err := os.Open(path)
	if err != nil {
		return File{}, &sandbox.Error{Op: "read configuration", Kind: sandbox.Invalid, Err: err, Hint: "give --config the path of a TOML file"}
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return File{}, &sandbox.Error{Op: "read configuration", Kind: sandbox.Invalid, Err: err}
	}
	c, err := Parse(b)
	if err != nil {
		return File{}, &sandbox.Error{Op: "read configuration " + path, Err: err}
	}
	return c, nil
}

// Parse reads and checks a file's text. The error names the line of a key that is
// not known, or whose value has another form than it should.
func Parse(b []byte) (File, error) {
	var f File
	if len(b) > maxFile {
		return File{}, sandbox.Errorf("", sandbox.Invalid, "it has more than %d bytes", maxFile)
	}
	dec := toml.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&f); err != nil {
		return File{}, explain(err)
	}
	return f, f.check()
}

// explain says in which line what is wrong.
func explain(err error) error {
	invalid := func(hint, format string, args ...any) error {
		return &sandbox.Error{Kind: sandbox.Invalid, Err: fmt.Errorf(format, args...), Hint: hint}
	}
	var unknown *toml.StrictMissingError
	if errors.As(err, &unknown) && len(unknown.Errors) > 0 {
		one := unknown.Errors[0]
		line, _ := one.Position()
		return invalid("docs/config.md has every key", "line %d: %s is not a key", line, strings.Join(one.Key(), "."))
	}
	var at *toml.DecodeError
	if errors.As(err, &at) {
		line, column := at.Position()
		text := strings.TrimPrefix(at.Error(), "toml: ")
		if key := strings.Join(at.Key(), "."); key != "" {
			text = key + ": " + text
		}
		return invalid("docs/config.md has the form of every value", "line %d, column %d: %s", line, column, text)
	}
	return invalid("docs/config.md has the form of every value", "%w", err)
}
