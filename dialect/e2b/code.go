package e2b

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/berth-dev/berth/sandbox"
)

// codeAlias is what these clients call the template for code.
const codeAlias = "code-interpreter-v1"

// defaultLanguages have a context of their name in every sandbox that has their
// kernels; it begins when it is first used.
var defaultLanguages = []string{"python", "javascript"}

// showSaved has the template's interpreter show pictures that are saved, as these
// clients expect.
const showSaved = "BERTH_SHOW_SAVED"

// rootDir is where nobody but root may be.
const rootDir = "/root"

// codeContext is a context as these clients know it. Its id is the name that it has
// here.
type codeContext struct {
	ID       string `json:"id"`
	Language string `json:"language"`
	Cwd      string `json:"cwd"`
}

// codeHandler serves what these clients find on a sandbox's kernel port.
func (d *Dialect) codeHandler() http.Handler {
	mux := http.NewServeMux()
	for pattern, h := range map[string]handler{
		"GET /health":                   d.codeHealth,
		"POST /execute":                 d.execute,
		"POST /contexts":                d.createContext,
		"GET /contexts":                 d.listContexts,
		"POST /contexts/{name}/restart": d.restartContext,
		"DELETE /contexts/{name}":       d.removeContext,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := h(w, r); err != nil {
				d.renderCode(w, r, err)
			}
		})
	}
	return mux
}

// serveCode serves the kernel port of a sandbox. To run code takes the sandbox's
// token; contexts are managed without, as these clients send none, but not where
// ports ask for one.
func (d *Dialect) serveCode(w http.ResponseWriter, r *http.Request, id string) {
	if cors(w, r) {
		return
	}
	s, ctx, ok := d.admit(w, r, id)
	if !ok {
		return
	}
	if r.URL.Path == "/execute" && d.secure(&s) && !same(r.Header.Get("X-Access-Token"), d.accessToken(s.ID)) {
		http.Error(w, "Invalid access token", http.StatusUnauthorized)
		return
	}
	s, ok = d.wakeFor(ctx, w, r, s)
	if !ok {
		return
	}
	t := &target{Sandbox: s, id: id}
	d.code.ServeHTTP(w, r.WithContext(context.WithValue(ctx, targetKey{}, t)))
}

// renderCode answers with an error, whose text these clients show.
func (d *Dialect) renderCode(w http.ResponseWriter, r *http.Request, err error) {
	t := targetOf(r.Context())
	if errors.Is(err, errNoKernels) {
		d.portError(w, r, &t.Sandbox, kernelPort, sandbox.ErrNotListening)
		return
	}
	status, text := statuses[sandbox.KindOf(err)], withHint(err.Error(), err)
	var f *fault
	switch {
	case errors.As(err, &f):
		status, text = f.status, f.text
	case status == http.StatusInternalServerError:
		d.log.Error("internal error", "sandbox", t.id, "path", r.URL.Path, "error", err)
		text = "internal error"
	case status == http.StatusNotImplemented: // such as a language without a kernel
		status = http.StatusInternalServerError
	}
	http.Error(w, strings.ToValidUTF8(text, "\uFFFD"), status)
}

// errNoKernels: the sandbox has none, so that nothing answers on the port.
var errNoKernels = errors.New("the template has no kernels")

func (d *Dialect) codeHealth(w http.ResponseWriter, r *http.Request) error {
	if err := d.anyKernel(r.Context()); err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, "OK")
	return nil
}

// anyKernel is errNoKernels in a sandbox that has none.
func (d *Dialect) anyKernel(ctx context.Context) error {
	all, err := d.engine.CodeLanguages(ctx, targetOf(ctx).id)
	if err == nil && len(all) == 0 {
		err = errNoKernels
	}
	return err
}

func (d *Dialect) createContext(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		Language string `json:"language"`
		Cwd      string `json:"cwd"`
	}
	if err := decode(w, r, &body); err != nil {
		return err
	}
	c, err := d.newContext(r.Context(), "", body.Language, body.Cwd)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, contextOf(c))
	return nil
}

// newContext begins a context, whose processes have what all of the sandbox have.
func (d *Dialect) newContext(ctx context.Context, name, language, cwd string) (sandbox.CodeContext, error) {
	t := targetOf(ctx)
	o := sandbox.CodeOptions{Name: name, Language: language, Cwd: t.path(cwd), Env: t.env(map[string]string{showSaved: "1"})}
	if cwd == "" {
		o.Cwd = defaultDir
	}
	if strings.HasPrefix(o.Cwd+"/", rootDir+"/") { // these clients expect kernels that may go there
		o.User = "root"
	}
	c, err := d.engine.CreateCodeContext(ctx, t.id, o)
	if sandbox.KindOf(err) == sandbox.NotFound && cwd != "" { // a folder that is not there is made
		if _, err := d.engine.MakeDir(ctx, t.id, o.Cwd, 0o755, o.User, true); err != nil {
			return c, err
		}
		c, err = d.engine.CreateCodeContext(ctx, t.id, o)
	}
	if sandbox.KindOf(err) == sandbox.Unsupported {
		if none := d.anyKernel(ctx); none != nil {
			return c, none
		}
	}
	return c, err
}

func contextOf(c sandbox.CodeContext) codeContext { return codeContext{c.Name, c.Language, c.Cwd} }

// listContexts lists the contexts, with the default ones that have not begun yet.
func (d *Dialect) listContexts(w http.ResponseWriter, r *http.Request) error {
	t := targetOf(r.Context())
	all, err := d.engine.CodeContexts(r.Context(), t.id)
	if err != nil {
		return err
	}
	languages, err := d.engine.CodeLanguages(r.Context(), t.id)
	if err != nil {
		return err
	}
	if len(languages) == 0 {
		return errNoKernels
	}
	out := []codeContext{}
	for _, name := range defaultLanguages {
		there := slices.ContainsFunc(all, func(c sandbox.CodeContext) bool { return c.Name == name })
		if !there && slices.Contains(languages, name) {
			out = append(out, codeContext{name, name, defaultDir})
		}
	}
	for _, c := range all {
		out = append(out, contextOf(c))
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

func (d *Dialect) restartContext(w http.ResponseWriter, r *http.Request) error {
	return d.withContext(w, r, func(ctx context.Context, id, name string) error {
		_, err := d.engine.RestartCodeContext(ctx, id, name)
		return err
	})
}

func (d *Dialect) removeContext(w http.ResponseWriter, r *http.Request) error {
	return d.withContext(w, r, d.engine.RemoveCodeContext)
}

// withContext does something to the context that a path names. A default one that
// has not begun is as it would be afterwards.
func (d *Dialect) withContext(w http.ResponseWriter, r *http.Request, do func(ctx context.Context, id, name string) error) error {
	name := r.PathValue("name")
	err := do(r.Context(), targetOf(r.Context()).id, name)
	switch kind := sandbox.KindOf(err); {
	case kind == sandbox.NotFound && slices.Contains(defaultLanguages, name):
	case kind == sandbox.NotFound || kind == sandbox.Invalid:
		return noContext(name)
	case err != nil:
		return err
	}
	writeJSON(w, http.StatusOK, nil)
	return nil
}

func noContext(name string) error {
	return &fault{status: http.StatusNotFound, text: fmt.Sprintf("Context %s not found", printable(name))}
}
