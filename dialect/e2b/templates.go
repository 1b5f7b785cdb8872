package e2b

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// listTemplates lists the templates, with what of them these clients read.
func (d *Dialect) listTemplates(w http.ResponseWriter, r *http.Request) error {
	all, err := d.engine.Templates(r.Context())
	if err != nil {
		return err
	}
	grouped := byName(all)
	from, limit, err := window(r.URL.Query(), len(grouped))
	if err != nil {
		return err
	}
	to := min(from+limit, len(grouped))
	if to < len(grouped) {
		w.Header().Set("X-Next-Token", strconv.Itoa(to))
	}
	writeJSON(w, http.StatusOK, grouped[from:to])
	return nil
}

// byName makes one of the tags of a template, which is described as its default tag
// is, or else as the first.
func byName(all []sandbox.Template) []templateInfo {
	out := []templateInfo{}
	at := map[string]int{}
	for _, t := range all {
		one := templateOf(t)
		name, tag := untag(t.Name)
		i, seen := at[name]
		if !seen {
			at[name] = len(out)
			out = append(out, one)
			continue
		}
		one.Names, one.BuildCount = append(out[i].Names, one.Names...), out[i].BuildCount+1
		if tag == defaultTag {
			out[i] = one
		} else {
			out[i].Names, out[i].BuildCount = one.Names, one.BuildCount
		}
	}
	return out
}

// templatePart serves two routes that a mux cannot tell apart: the tags of a
// template, and the template of an alias.
func (d *Dialect) templatePart(w http.ResponseWriter, r *http.Request) error {
	first, second := r.PathValue("template"), r.PathValue("part")
	switch {
	case first == "aliases":
		return d.templateByAlias(w, r, second)
	case second == "tags":
		return d.templateTags(w, r)
	}
	return &fault{status: http.StatusNotFound, text: "no route " + r.Method + " " + r.URL.Path}
}

func (d *Dialect) templateByAlias(w http.ResponseWriter, r *http.Request, alias string) error {
	name := templateName(alias)
	t, err := d.engine.Template(r.Context(), name)
	if kind := sandbox.KindOf(err); kind == sandbox.NotFound || kind == sandbox.Invalid {
		return &fault{status: http.StatusNotFound, text: fmt.Sprintf("template alias '%s' not found", printable(name)), err: err}
	}
	if err != nil {
		return err
	}
	base, _ := untag(t.Name)
	writeJSON(w, http.StatusOK, map[string]any{"templateID": base, "public": true})
	return nil
}

func templateOf(t sandbox.Template) templateInfo {
	limits := limitsOf(t)
	name, tag := untag(t.Name)
	return templateInfo{TemplateID: name, BuildID: madeBy(t), Names: []string{name + ":" + tag}, Aliases: []string{name}, Public: true,
		CPUCount: limits.CPUMilli / 1000, MemoryMB: limits.MemoryBytes >> 20, DiskSizeMB: limits.DiskBytes >> 20,
		CreatedAt: t.Created, UpdatedAt: t.Created, BuildCount: 1, EnvdVersion: envdVersion, BuildStatus: "ready"}
}

// limitsOf is what sandboxes of a template get: whole processors for these clients.
func limitsOf(t sandbox.Template) sandbox.Limits {
	l := sandbox.DefaultLimits()
	if t.Limits != nil {
		l = t.Limits.WithDefaults(l)
	}
	l.CPUMilli = max(1, (l.CPUMilli+999)/1000) * 1000
	return l
}

// untag splits the server's own name of a template into the client's name and tag.
func untag(name string) (base, tag string) {
	base, tag, ok := strings.Cut(name, tagMark)
	if !ok {
		tag = defaultTag
	}
	return base, tag
}

// madeBy is the id of the build that made a template. One that was made otherwise
// has an id that its root gives it.
func madeBy(t sandbox.Template) string {
	if uuidPattern.MatchString(t.Build) {
		return t.Build
	}
	var b [16]byte
	_, _ = hex.Decode(b[:], []byte(cutTo(strings.TrimPrefix(t.Digest, "sha256:"), 32))) // of a digest, or nothing
	return uuid(b)
}

func cutTo(s string, n int) string { return s[:min(n, len(s))] }

// getTemplate describes a template and the builds of it that are known.
func (d *Dialect) getTemplate(w http.ResponseWriter, r *http.Request) error {
	all, err := d.tagged(r, r.PathValue("template"))
	if err != nil {
		return err
	}
	t := all[0]
	info := byName(all)[0]
	writeJSON(w, http.StatusOK, templateDetail{TemplateID: info.TemplateID, Public: true, Names: info.Names, Aliases: info.Aliases,
		CreatedAt: t.Created, UpdatedAt: t.Created,
		Builds: []templateBuild{{BuildID: info.BuildID, Status: "ready", CreatedAt: t.Created, UpdatedAt: t.Created, FinishedAt: t.Created,
			CPUCount: info.CPUCount, MemoryMB: info.MemoryMB, DiskSizeMB: info.DiskSizeMB, EnvdVersion: envdVersion}}})
	return nil
}

// publish takes that templates are for all accounts, which here they always are.
func (d *Dialect) publish(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		Public *bool `json:"public"`
	}
	if err := decode(w, r, &body); err != nil {
		return err
	}
	all, err := d.tagged(r, r.PathValue("template"))
	if err != nil {
		return err
	}
	if body.Public != nil && !*body.Public {
		return unsupported("templates are the server's: all of its accounts may use them")
	}
	writeJSON(w, http.StatusOK, map[string]any{"names": byName(all)[0].Names})
	return nil
}

// buildLogs gives the log of a build from a time on, forward or backward.
func (d *Dialect) buildLogs(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	from, err := millis(q, "cursor")
	if err != nil {
		return err
	}
	limit := maxStatusLines
	if text := q.Get("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 0 || limit > maxStatusLines {
			return invalid(fmt.Sprintf("limit takes 0 to %d", maxStatusLines))
		}
	}
	backward := q.Get("direction") == "backward"
	out := []buildLine{}
	b, err := d.engine.GetBuild(r.Context(), r.PathValue("build"), 0)
	if err != nil && sandbox.KindOf(err) != sandbox.NotFound { // what is forgotten has no log any more
		return err
	}
	for _, line := range b.Lines {
		late := !from.IsZero() && backward == line.Time.After(from) && !line.Time.Equal(from)
		if e := lineOf(line); !late && severity(e.Level) >= severity(cmp.Or(q.Get("level"), "debug")) {
			out = append(out, e)
		}
	}
	if backward {
		slices.Reverse(out)
	}
	writeJSON(w, http.StatusOK, map[string]any{"logs": out[:min(limit, len(out))]})
	return nil
}

// lineOf is a line of a build's log. What it is about stands in the line itself.
func lineOf(line sandbox.BuildLine) buildLine {
	return buildLine{Timestamp: line.Time, Level: "info", Message: line.Text}
}

// templateDetail is a template with its builds.
type templateDetail struct {
	TemplateID    string          `json:"templateID"`
	Public        bool            `json:"public"`
	Names         []string        `json:"names"`
	Aliases       []string        `json:"aliases"`
	CreatedAt     time.Time       `json:"createdAt"`
	UpdatedAt     time.Time       `json:"updatedAt"`
	LastSpawnedAt *time.Time      `json:"lastSpawnedAt"`
	SpawnCount    int64           `json:"spawnCount"`
	Builds        []templateBuild `json:"builds"`
}

type templateBuild struct {
	BuildID     string    `json:"buildID"`
	Status      string    `json:"status"`
	CreatedAt   time.Time `json:"createdAt"`
	UpdatedAt   time.Time `json:"updatedAt"`
	FinishedAt  time.Time `json:"finishedAt"`
	CPUCount    int64     `json:"cpuCount"`
	MemoryMB    int64     `json:"memoryMB"`
	DiskSizeMB  int64     `json:"diskSizeMB"`
	EnvdVersion string    `json:"envdVersion"`
}
