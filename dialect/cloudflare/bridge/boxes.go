package bridge

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"net/http"
	"path"
	"regexp"
	"strings"

	"github.com/berth-dev/berth/sandbox"
)

// idPattern is the form of a sandbox's id.
var idPattern = regexp.MustCompile(`^[a-z2-7]{1,128}$`)

// newID makes an id: 26 characters, 128 random bits.
func newID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails: it ends the program instead
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b[:]))
}

// nameOf is the name that the sandbox of an id has in its account: of two ids, two.
func nameOf(id string) string {
	const plain, hashed, fits = "bridge-", "bridge.", 56
	if len(id) <= fits {
		return plain + id
	}
	sum := sha256.Sum256([]byte(id))
	return hashed + hex.EncodeToString(sum[:20])
}

// metaMade marks the sandboxes that were made here.
const metaMade = "cloudflare.bridge"

// idleSeconds is how long a sandbox may be idle. Then it is paused, with all that it
// holds, until it is used again.
const idleSeconds = 600

// user is whom all inside is done as.
const user = "root"

// box gives the sandbox of the id in a request's path, and makes it if there is none.
// Of many calls at once one makes it, and the others wait for that.
func (b *Bridge) box(r *http.Request) (string, error) {
	ctx, name := r.Context(), nameOf(r.PathValue("id"))
	s, err := b.Engine.Get(ctx, name)
	switch kind := sandbox.KindOf(err); {
	case err != nil && kind != sandbox.NotFound:
		return "", failed("pool error", codePool, err)
	case err == nil && s.State != sandbox.Starting && s.State != sandbox.Failed:
		return string(s.ID), nil
	}
	c, cerr := sandbox.CallerOf(ctx)
	switch {
	case cerr != nil:
		return "", cerr
	case c.May(sandbox.ScopeAdmin):
		return b.make(ctx, name)
	case err == nil && s.State == sandbox.Starting:
		return "", &fault{status: http.StatusServiceUnavailable, code: codePool, text: "the sandbox is starting"}
	}
	return "", forbidden("there is no such sandbox, and the key may make none")
}

// make gives the living sandbox of a name, or makes it.
func (b *Bridge) make(ctx context.Context, name string) (string, error) {
	template, err := b.template(ctx)
	if err != nil {
		return "", failed("pool error", codePool, err)
	}
	req := sandbox.CreateRequest{Name: name, Get: true, Template: template,
		Metadata: map[string]string{metaMade: "true"}, Idle: &sandbox.Idle{TimeoutSeconds: idleSeconds, Action: sandbox.ActPause}}
	req.Limits.FuseMounts = sandbox.MaxFuseMounts
	s, err := b.Engine.Create(ctx, req)
	if sandbox.KindOf(err) == sandbox.Exhausted {
		return "", &fault{status: http.StatusServiceUnavailable, code: codeFull, text: "capacity exceeded", err: err}
	}
	return string(s.ID), failed("pool error", codePool, err)
}

// template is what new sandboxes are made from.
func (b *Bridge) template(ctx context.Context) (string, error) {
	if b.Template != "" {
		return b.Template, nil
	}
	t, err := b.Engine.Template(ctx, sandbox.BucketTemplate)
	if sandbox.KindOf(err) == sandbox.NotFound {
		return "", nil
	}
	return t.Name, err
}

// create gives out an id. Its sandbox is made when it is first used.
func (b *Bridge) create(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, made{newID()})
}

// remove ends a sandbox and deletes all of it. One that is not there is no error.
func (b *Bridge) remove(w http.ResponseWriter, r *http.Request) error {
	err := b.Engine.Remove(r.Context(), nameOf(r.PathValue("id")))
	if err != nil && sandbox.KindOf(err) != sandbox.NotFound {
		return failed("pool error", codePool, err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// running makes the sandbox run, and says whether it does.
func (b *Bridge) running(w http.ResponseWriter, r *http.Request) error {
	id, err := b.box(r)
	if err == nil {
		_, err = b.Engine.Awake(r.Context(), id)
	}
	var f *fault
	if errors.As(err, &f) && f.status == http.StatusForbidden {
		return err
	}
	if err != nil {
		b.Logger.Warn("a sandbox does not run", "name", nameOf(r.PathValue("id")), "error", err)
	}
	return writeJSON(w, runs{err == nil})
}

// workspace is the folder that clients may reach by path.
const workspace = "/workspace"

// inWorkspace is a client's path without dots, or false if it leads out of the
// workspace. What lies there may still be a link: that is the sandbox's own affair.
func inWorkspace(p string) (string, bool) {
	if !path.IsAbs(p) {
		p = path.Join(workspace, p)
	}
	p = path.Clean(p)
	return p, p == workspace || strings.HasPrefix(p, workspace+"/")
}
