package gvisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// limit is one file of a cgroup that holds a limit.
type limit struct {
	Dir  string `json:"dir"`
	Name string `json:"name"`
	Text string `json:"text"` // what it holds
}

// lift takes the group's limits away, for a machine that stands still, and
// returns what sets them again.
func (g *group) lift() (restore func() error, err error) {
	held, err := g.limits()
	if err != nil {
		return nil, err
	}
	restore = func() error { return impose(held) }
	for _, l := range held {
		if err := writeText(l.Dir, l.Name, g.free(l.Name)); err != nil {
			return nil, errors.Join(err, restore())
		}
	}
	return restore, nil
}

// limits are the group's present ones, in the order in which they may be lifted.
func (g *group) limits() ([]limit, error) {
	memory, cpu := g.dir(g.of.memory), g.dir(g.of.cpu)
	files := []limit{
		{Dir: memory, Name: "memory.memsw.limit_in_bytes"}, // before the next: it must not be less
		{Dir: memory, Name: "memory.limit_in_bytes"},
		{Dir: cpu, Name: "cpu.cfs_quota_us"},
	}
	if g.of.memory.unified {
		files[0].Name, files[1].Name = "", "memory.max"
	}
	if g.of.cpu.unified {
		files[2].Name = "cpu.max"
	}
	var held []limit
	for _, l := range files {
		b, err := os.ReadFile(filepath.Join(l.Dir, l.Name))
		if l.Name == "" || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		l.Text = strings.TrimSpace(string(b))
		held = append(held, l)
	}
	return held, nil
}

// free is what lifts the limit in a file of that name.
func (g *group) free(name string) string {
	switch name {
	case "memory.max":
		return "max"
	case "cpu.max":
		return fmt.Sprintf("max %d", cpuPeriod)
	}
	return "-1"
}

// impose sets limits, in the reverse of the order in which they were lifted.
func impose(held []limit) error {
	var errs []error
	for _, l := range slices.Backward(held) {
		errs = append(errs, writeText(l.Dir, l.Name, l.Text))
	}
	return errors.Join(errs...)
}

// liftNote holds the limits of a machine that were lifted while it runs on, for
// a process that comes after this one was killed.
func (p place) liftNote() string { return p.dir + "/lifted.json" }

// liftNoted is lift for a machine that runs on whatever becomes of this process.
func (m *machine) liftNoted() (restore func() error, err error) {
	held, err := m.group.limits()
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(held)
	if err != nil {
		return nil, err
	}
	if err := writeWhole(m.place.liftNote(), b); err != nil {
		return nil, err
	}
	undo, err := m.group.lift()
	if err != nil {
		return nil, errors.Join(err, removeAll(m.place.liftNote()))
	}
	return func() error { return errors.Join(undo(), removeAll(m.place.liftNote())) }, nil
}

// imposeNoted sets limits that an earlier process has lifted and not set again.
func (p place) imposeNoted() error {
	b, err := os.ReadFile(p.liftNote())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var held []limit
	if err := json.Unmarshal(b, &held); err != nil {
		return err
	}
	return errors.Join(impose(held), removeAll(p.liftNote()))
}
