package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// MaxEngines bounds how many engines may wait.
const MaxEngines = 1000

func bad(key, hint, format string, args ...any) error {
	return &sandbox.Error{Op: "check " + key, Kind: sandbox.Invalid, Err: fmt.Errorf(format, args...), Hint: hint}
}

// check reports an error of kind Invalid for the first value that cannot be.
func (f *File) check() error {
	if f.Listen != "" {
		if _, _, err := net.SplitHostPort(f.Listen); err != nil {
			return bad("listen", "give HOST:PORT", "%.100q is not an address to listen on", f.Listen)
		}
	}
	if f.URL != "" {
		u, err := url.Parse(f.URL)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			return bad("url", "such as https://berth.example.com", "%.100q is not an http or https address", f.URL)
		}
	}
	if f.LogFormat != "" && !slices.Contains([]string{"text", "json"}, f.LogFormat) {
		return bad("log_format", "take text or json", "%.40q is no log format", f.LogFormat)
	}
	if f.LogLevel != "" && !slices.Contains([]string{"debug", "info", "warn", "error"}, f.LogLevel) {
		return bad("log_level", "take debug, info, warn or error", "%.40q is no log level", f.LogLevel)
	}
	if n := f.Limits.Engines; n != nil && (*n < 0 || *n > MaxEngines) {
		return bad("limits.engines", fmt.Sprintf("give 0 to %d, or leave it out for the default", MaxEngines), "it is %d", *n)
	}
	if l := f.Limits; l.Creates < 0 || l.Queue < 0 || l.Forks < 0 || l.Forks > sandbox.MaxForks || l.Events < 0 {
		return bad("limits", "leave a bound out for the default", "a bound is negative, or too large")
	}
	if f.Store.Size < 0 {
		return bad("store", "leave it out for none", "size is %d", f.Store.Size)
	}
	if r := f.Room; r.Free < 0 || r.Percent != nil && (*r.Percent < 0 || *r.Percent > 90) {
		return bad("room", "free takes bytes, percent 0 to 90", "free or percent is out of its range")
	}
	if k := f.Containers.Keep.Duration; k != 0 && k < time.Minute {
		return bad("containers.keep", "give at least a minute, or leave it out for a week", "it is %v", k)
	}
	if o := f.Containers.Orphan.Duration; o != 0 && o < time.Minute {
		return bad("containers.orphan", "give at least a minute, or leave it out for an hour", "it is %v", o)
	}
	if t := f.Containers.Bridge; t != "" {
		if err := sandbox.CheckName(t); err != nil {
			return &sandbox.Error{Op: "check containers.bridge", Err: err}
		}
	}
	if err := f.checkDoors(); err != nil {
		return err
	}
	if err := f.checkTypes(); err != nil {
		return err
	}
	if err := f.Quota.Quota().Check(); err != nil {
		return &sandbox.Error{Op: "check quota", Err: err}
	}
	return f.Temporary.check()
}

func (f *File) checkTypes() error {
	for i, t := range f.Types {
		if err := sandbox.CheckName(t.Name); err != nil {
			return &sandbox.Error{Op: "check types", Err: err}
		}
		if slices.ContainsFunc(f.Types[:i], func(o Type) bool { return o.Name == t.Name }) {
			return bad("types", "give each name once", "the type %s comes twice", t.Name)
		}
		if err := t.Limits().WithDefaults(sandbox.DefaultLimits()).Check(); err != nil {
			return &sandbox.Error{Op: "check type " + t.Name, Err: err}
		}
	}
	return nil
}

// maxWork is the most work that may be asked for: about an hour of one core.
const maxWork = 32

func (t *Temporary) check() error {
	switch {
	case t.Hourly < 0 || t.Most < 0:
		return bad("temporary", "leave a bound out for the default", "a bound is negative")
	case t.WorkBits < 0 || t.WorkBits > maxWork:
		return bad("temporary.work_bits", "20 is about a second", "it is %d, 0 to %d are taken", t.WorkBits, maxWork)
	case t.Lifetime.Duration != 0 && t.Lifetime.Duration < time.Minute:
		return bad("temporary.lifetime", "give at least a minute", "it is %v", t.Lifetime.Duration)
	}
	return t.Quota.Quota().Check()
}

// Quota is the quota in the words of the engine.
func (q Quota) Quota() sandbox.Quota {
	return sandbox.Quota{Sandboxes: q.Sandboxes, CPUMilli: q.CPUMilli, MemoryBytes: int64(q.Memory),
		DiskBytes: int64(q.Disk), SnapshotBytes: int64(q.Snapshots), ForkAtOnce: q.ForkAtOnce}
}

// Limits are those of the type; a field that was left out is 0.
func (t Type) Limits() sandbox.Limits {
	return sandbox.Limits{CPUMilli: t.CPUMilli, MemoryBytes: int64(t.Memory), DiskBytes: int64(t.Disk), Processes: t.Processes, OpenFiles: t.OpenFiles, Files: t.Files}
}

// InstanceTypes are the types of the file.
func (f *File) InstanceTypes() []sandbox.InstanceType {
	var all []sandbox.InstanceType
	for _, t := range f.Types {
		all = append(all, sandbox.InstanceType{Name: t.Name, Limits: t.Limits()})
	}
	return all
}

// TemporaryQuota is what a temporary account may use: fields that are left out are
// as in DefaultTemporaryQuota.
func (f *File) TemporaryQuota() sandbox.Quota {
	q, d := f.Temporary.Quota.Quota(), DefaultTemporaryQuota()
	for _, p := range [][2]*int64{{&q.Sandboxes, &d.Sandboxes}, {&q.CPUMilli, &d.CPUMilli}, {&q.MemoryBytes, &d.MemoryBytes},
		{&q.DiskBytes, &d.DiskBytes}, {&q.SnapshotBytes, &d.SnapshotBytes}, {&q.ForkAtOnce, &d.ForkAtOnce}} {
		if *p[0] == 0 {
			*p[0] = *p[1]
		}
	}
	return q
}

// WebhookRanges are the ranges that webhooks may be sent to beside the internet.
func (f *File) WebhookRanges() []netip.Prefix {
	var all []netip.Prefix
	for _, p := range f.Webhooks.Allow {
		all = append(all, p.Prefix)
	}
	return all
}

// Fixed lists the keys in which two files differ and which a running server does
// not take over.
func Fixed(old, next File) []string {
	var keys []string
	for _, k := range []struct {
		name string
		same bool
	}{
		{"listen", old.Listen == next.Listen}, {"domain", old.Domain == next.Domain}, {"url", old.URL == next.URL},
		{"log_format", old.LogFormat == next.LogFormat}, {"drain", old.Drain == next.Drain},
		{"limits", reflect.DeepEqual(old.Limits, next.Limits)}, {"types", slices.Equal(old.Types, next.Types)}, {"prices", old.Prices == next.Prices},
		{"metrics", old.Metrics == next.Metrics}, {"room", reflect.DeepEqual(old.Room, next.Room)}, {"snapshots", old.Snapshots == next.Snapshots},
		{"store", old.Store == next.Store}, {"https", old.HTTPS == next.HTTPS}, {"acme", old.ACME == next.ACME},
		{"egress", reflect.DeepEqual(old.Egress, next.Egress)}, {"audit", old.Audit == next.Audit},
	} {
		if !k.same {
			keys = append(keys, k.name)
		}
	}
	return keys
}
