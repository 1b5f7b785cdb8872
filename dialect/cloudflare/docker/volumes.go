package docker

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// workerd keeps a folder of a container in a volume, and copies that into another, a
// clone, for each container that begins with the folder. No two containers share one.
const clonePrefix = "workerd-snap-clone-"

// cloneGrace is how long a clone may be nobody's: its container is made after it.
const cloneGrace = time.Hour

// volumeBody describes a volume.
type volumeBody struct {
	Name       string
	Driver     string
	Scope      string
	Mountpoint string
	CreatedAt  string
	Labels     map[string]string
	Options    map[string]string
}

func describeVolume(v *sandbox.Volume) volumeBody {
	return volumeBody{Name: v.Name, Driver: "local", Scope: "local", CreatedAt: moment(v.Created), Labels: map[string]string{}, Options: map[string]string{}}
}

// volumes lists volumes by parts of their names. None has a label.
func (d *Dialect) volumes(w http.ResponseWriter, r *http.Request) error {
	f, err := filtersOf(r)
	if err != nil {
		return err
	}
	all, err := d.engine.Volumes(r.Context())
	if err != nil && sandbox.KindOf(err) != sandbox.Unsupported { // then there are none
		return err
	}
	rows := []volumeBody{}
	for _, v := range all {
		if f.match(&row{Names: []string{v.Name}}) {
			rows = append(rows, describeVolume(&v))
		}
	}
	writeJSON(w, http.StatusOK, map[string]any{"Volumes": rows, "Warnings": []string{}})
	return nil
}

// createVolume makes a volume. One that is there is as good.
func (d *Dialect) createVolume(w http.ResponseWriter, r *http.Request) error {
	var b struct{ Name string }
	if err := readBody(w, r, &b); err != nil {
		return err
	}
	if b.Name == "" {
		b.Name = "berth-" + strings.ToLower(string(sandbox.NewID()))
	}
	v, err := d.engine.CreateVolume(r.Context(), sandbox.VolumeRequest{Name: b.Name})
	if sandbox.KindOf(err) == sandbox.Conflict {
		v, err = d.engine.Volume(r.Context(), b.Name)
	}
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, describeVolume(&v))
	return nil
}

func (d *Dialect) inspectVolume(w http.ResponseWriter, r *http.Request) error {
	v, err := d.engine.Volume(r.Context(), r.PathValue("volume"))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, describeVolume(&v))
	return nil
}

func (d *Dialect) removeVolume(w http.ResponseWriter, r *http.Request) error {
	if err := d.engine.RemoveVolume(r.Context(), r.PathValue("volume")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// volumesOf reads which volumes a container is to have, and refuses what would give it
// a part of the host.
func volumesOf(h *hostConfig) (all []sandbox.VolumeMount, err error) {
	mounts := slices.Clone(h.Mounts)
	for _, b := range h.Binds { // SOURCE:TARGET[:OPTIONS]
		source, rest, _ := strings.Cut(b, ":")
		target, options, _ := strings.Cut(rest, ":")
		m := mount{Type: "volume", Source: source, Target: target, ReadOnly: slices.Contains(strings.Split(options, ","), "ro")}
		if strings.Contains(source, "/") {
			m.Type = "bind"
		}
		mounts = append(mounts, m)
	}
	for _, m := range mounts {
		switch {
		case m.Type != "volume":
			return nil, unsupported("mount "+printable(m.Source), "folders of the host are not mounted; volumes are")
		case m.Source == "":
			return nil, invalid("the mount at %.200s names no volume", m.Target)
		}
		all = append(all, sandbox.VolumeMount{Volume: m.Source, Path: m.Target, ReadOnly: m.ReadOnly})
	}
	return all, nil
}

// sweepClones removes the clones that no container has any more: whoever made them
// would have, had it lived.
func (d *Dialect) sweepClones(ctx context.Context, now time.Time) error {
	all, err := d.engine.Volumes(ctx)
	if sandbox.KindOf(err) == sandbox.Unsupported {
		return nil // there are none
	}
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(v sandbox.Volume) bool {
		return !strings.HasPrefix(v.Name, clonePrefix) || now.Sub(v.Created) < cloneGrace
	})
	for _, v := range all {
		err := d.engine.RemoveVolume(ctx, string(v.ID))
		if kind := sandbox.KindOf(err); err != nil && kind != sandbox.Conflict && kind != sandbox.NotFound {
			return fmt.Errorf("remove the clone %s: %w", v.Name, err)
		}
	}
	return nil
}
