package e2b

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/berth-dev/berth/sandbox"
)

// forked is one child of a fork: one of the two is set.
type forked struct {
	Sandbox *createdSandbox `json:"sandbox,omitempty"`
	Error   *apiError       `json:"error,omitempty"`
}

// fork makes copies of a running sandbox. They have ends of their own.
func (d *Dialect) fork(w http.ResponseWriter, r *http.Request) error {
	body := struct {
		Count   *int   `json:"count"`
		Timeout *int64 `json:"timeout"`
	}{}
	if err := decode(w, r, &body); err != nil {
		return err
	}
	s, err := d.box(r.Context(), r)
	if err != nil {
		return err
	}
	req := sandbox.ForkRequest{Count: 1}
	if body.Count != nil {
		req.Count = *body.Count
	}
	if req.Count < 1 || req.Count > sandbox.MaxForks {
		return invalid(fmt.Sprintf("count takes 1 to %d", sandbox.MaxForks))
	}
	timeout := int64(firstTimeout)
	if body.Timeout != nil {
		timeout = *body.Timeout
	}
	pause := s.Lifetime != nil && s.Lifetime.Then() != sandbox.ActRemove
	if req.Lifetime, err = lifetime(timeout, pause, s.Lifetime == nil || s.Lifetime.Then() != sandbox.ActStop); err != nil {
		return err
	}
	made, err := d.engine.Fork(r.Context(), string(s.ID), req)
	if err != nil {
		return err
	}
	d.noteForks(r.Context(), made.Children)
	out := make([]forked, 0, len(made.Children))
	for _, child := range made.Children {
		if child.Err != nil {
			status := statuses[sandbox.KindOf(child.Err)]
			out = append(out, forked{Error: &apiError{Code: status, Message: withHint(child.Err.Error(), child.Err)}})
			continue
		}
		one := d.created(*child.Sandbox)
		out = append(out, forked{Sandbox: &one})
	}
	writeJSON(w, http.StatusCreated, out)
	return nil
}

// snapshotInfo is a snapshot as these clients know it: a template.
type snapshotInfo struct {
	SnapshotID string   `json:"snapshotID"`
	Names      []string `json:"names"`
}

func infoOf(s sandbox.Snapshot) snapshotInfo {
	out := snapshotInfo{SnapshotID: string(s.ID), Names: []string{}}
	if s.Name != "" {
		name, tag := untag(s.Name)
		out.Names = append(out.Names, name+":"+tag)
	}
	return out
}

func (d *Dialect) snapshot(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		Name string `json:"name"`
	}
	if err := decode(w, r, &body); err != nil {
		return err
	}
	s, err := d.box(r.Context(), r)
	if err != nil {
		return err
	}
	made, err := d.engine.Snapshot(r.Context(), string(s.ID), sandbox.SnapshotRequest{Name: templateName(body.Name)})
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, infoOf(made))
	return nil
}

// snapshots lists the snapshots, newest first, in pages.
func (d *Dialect) snapshots(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	all, err := d.engine.Snapshots(r.Context(), sandbox.SnapshotQuery{Sandbox: q.Get("sandboxID")})
	if sandbox.KindOf(err) == sandbox.NotFound {
		all, err = nil, nil
	}
	if err != nil {
		return err
	}
	out := []snapshotInfo{}
	for _, s := range all {
		if name := q.Get("name"); name == "" || templateName(name) == s.Name || name == string(s.ID) {
			out = append(out, infoOf(s))
		}
	}
	from, limit, err := window(q, len(out))
	if err != nil {
		return err
	}
	to := min(from+limit, len(out))
	if to < len(out) {
		w.Header().Set("X-Next-Token", strconv.Itoa(to))
	}
	writeJSON(w, http.StatusOK, out[from:to])
	return nil
}

// window is the part of a list of n that a query asks for.
func window(q url.Values, n int) (from, limit int, err error) {
	limit = maxPage
	if text := q.Get("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > maxPage {
			return 0, 0, invalid(fmt.Sprintf("limit takes 1 to %d", maxPage))
		}
	}
	if text := q.Get("nextToken"); text != "" {
		if from, err = strconv.Atoi(text); err != nil || from < 0 {
			return 0, 0, invalid("nextToken is not one that this server gave")
		}
	}
	return min(from, n), limit, nil
}

// snapshotOf finds the snapshot that a template's name means, if it means one.
func (d *Dialect) snapshotOf(ctx context.Context, name string) (id string, ok bool, err error) {
	s, err := d.engine.GetSnapshot(ctx, templateName(name))
	switch kind := sandbox.KindOf(err); {
	case kind == sandbox.NotFound || kind == sandbox.Invalid || kind == sandbox.Unsupported:
		return "", false, nil
	case err != nil:
		return "", false, err
	}
	return string(s.ID), true, nil
}

// removeTemplate removes a template with all of its tags, or the snapshot of that
// name.
func (d *Dialect) removeTemplate(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("template")
	id, ok, err := d.snapshotOf(r.Context(), name)
	switch {
	case err != nil:
		return err
	case ok:
		err = d.engine.RemoveSnapshot(r.Context(), id)
	default:
		err = d.removeTagged(r, name)
	}
	if kind := sandbox.KindOf(err); kind == sandbox.NotFound || kind == sandbox.Invalid {
		return noTemplate(name, err)
	}
	if err != nil {
		return err
	}
	writeEmpty(w, http.StatusNoContent)
	return nil
}

func (d *Dialect) removeTagged(r *http.Request, name string) error {
	all, err := d.tagged(r, name)
	for _, t := range all {
		if err == nil {
			err = d.engine.RemoveTemplate(r.Context(), t.Name)
		}
	}
	return err
}

// updateNetwork replaces what a sandbox may reach.
func (d *Dialect) updateNetwork(w http.ResponseWriter, r *http.Request) error {
	var n network
	if err := decode(w, r, &n); err != nil {
		return err
	}
	s, err := d.box(r.Context(), r)
	if err != nil {
		return err
	}
	if stateOf(s.State) != "running" {
		return &fault{status: http.StatusConflict, text: fmt.Sprintf("sandbox '%s' is not running", s.ID)}
	}
	policy, err := n.policy()
	if err != nil {
		return err
	}
	if err := d.haveSecrets(r.Context(), policy); err != nil {
		return err
	}
	if _, err := d.engine.SetPolicy(r.Context(), string(s.ID), *policy); err != nil {
		return err
	}
	kept := map[string]string{}
	if old, _ := networkOf(&s); old != nil { // how it is reached stays
		n.AllowPublicTraffic, n.MaskRequestHost, n.HTTPSPorts = old.AllowPublicTraffic, old.MaskRequestHost, old.HTTPSPorts
	}
	if err := n.keep(kept); err != nil {
		return err
	}
	update := sandbox.Update{Metadata: map[string]*string{metaNetwork: nil}}
	if text, ok := kept[metaNetwork]; ok {
		update.Metadata[metaNetwork] = &text
	}
	if _, err := d.engine.Update(r.Context(), string(s.ID), update); err != nil {
		return err
	}
	writeEmpty(w, http.StatusNoContent)
	return nil
}
