package e2b

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// newTemplate is the body that asks for a template and a build of it.
type newTemplate struct {
	Name     string   `json:"name"`
	Alias    string   `json:"alias"`
	Tags     []string `json:"tags"`
	CPUCount int64    `json:"cpuCount"`
	MemoryMB int64    `json:"memoryMB"`
}

// newBuild answers it.
type newBuild struct {
	TemplateID string   `json:"templateID"`
	BuildID    string   `json:"buildID"`
	Public     bool     `json:"public"`
	Names      []string `json:"names"`
	Tags       []string `json:"tags"`
	Aliases    []string `json:"aliases"`
}

// buildBody says what a build does.
type buildBody struct {
	FromImage    string      `json:"fromImage"`
	FromTemplate string      `json:"fromTemplate"`
	Registry     *registry   `json:"fromImageRegistry"`
	StartCmd     string      `json:"startCmd"`
	ReadyCmd     string      `json:"readyCmd"`
	Force        bool        `json:"force"`
	Steps        []buildStep `json:"steps"`
}

// registry is what a build shows to the registry of a private image.
type registry struct {
	Type           string           `json:"type"`
	Username       string           `json:"username"`
	Password       sandbox.Password `json:"password"`
	ServiceAccount sandbox.Password `json:"serviceAccountJson"`
	AWSKeyID       string           `json:"awsAccessKeyId"`
	AWSKey         sandbox.Password `json:"awsSecretAccessKey"`
	AWSRegion      string           `json:"awsRegion"`
}

// login is that as a name and a password, once awsLogin has made those of AWS.
func (r *registry) login() (*sandbox.Login, error) {
	switch r.Type {
	case "registry":
		return &sandbox.Login{Username: r.Username, Password: r.Password}, nil
	case "gcp": // its registries take a key document as a password
		return &sandbox.Login{Username: "_json_key", Password: r.ServiceAccount}, nil
	}
	return nil, invalid(fmt.Sprintf("fromImageRegistry: the type %q is none of registry, gcp and aws", printable(r.Type)))
}

type buildStep struct {
	Type      string   `json:"type"`
	Args      []string `json:"args"`
	FilesHash string   `json:"filesHash"`
	Force     bool     `json:"force"`
}

// buildStatus tells how a build goes.
type buildStatus struct {
	TemplateID string       `json:"templateID"`
	BuildID    string       `json:"buildID"`
	Status     string       `json:"status"`
	LogEntries []buildLine  `json:"logEntries"`
	Logs       []string     `json:"logs"`
	Reason     *buildReason `json:"reason,omitempty"`
}

type buildLine struct {
	Timestamp time.Time `json:"timestamp"`
	Level     string    `json:"level"`
	Message   string    `json:"message"`
	Step      string    `json:"step,omitempty"`
}

type buildReason struct {
	Message    string      `json:"message"`
	Step       string      `json:"step,omitempty"`
	LogEntries []buildLine `json:"logEntries"`
}

// maxStatusLines is how many lines of a log one status tells.
const maxStatusLines = 100

// baseImage is the image that clients begin with who name none.
const baseImage = "e2bdev/base"

// newTemplate settles the name and the tags of a template, and the id of a build.
// Nothing is made yet.
func (d *Dialect) newTemplate(w http.ResponseWriter, r *http.Request) error {
	var body newTemplate
	if err := decode(w, r, &body); err != nil {
		return err
	}
	if body.Name == "" {
		body.Name = body.Alias
	}
	name, tag, tagged := strings.Cut(path.Base(body.Name), ":")
	id := strings.ToLower(name)
	if tagged {
		body.Tags = append([]string{tag}, body.Tags...)
	}
	if err := sandbox.CheckName(id); err != nil {
		return err
	}
	tags, err := checkTags(body.Tags)
	if err != nil {
		return err
	}
	if len(tags) == 0 {
		tags = []string{defaultTag}
	}
	out := newBuild{TemplateID: id, BuildID: newBuildID(body.CPUCount, body.MemoryMB), Public: true,
		Names: []string{}, Tags: tags, Aliases: []string{id}}
	d.planned.add(out.BuildID, tags)
	for _, tag := range tags {
		out.Names = append(out.Names, id+":"+tag)
	}
	writeJSON(w, http.StatusAccepted, out)
	return nil
}

// defaultTag is the tag of a name without one.
const defaultTag = "default"

var (
	tagPattern  = regexp.MustCompile(`^[a-z0-9_.-]{1,64}$`)
	uuidPattern = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
)

func checkTags(all []string) ([]string, error) {
	out := []string{}
	for _, tag := range all {
		tag = strings.ToLower(tag)
		if !tagPattern.MatchString(tag) || uuidPattern.MatchString(tag) {
			return nil, invalid(fmt.Sprintf("tag %q: a tag has characters of a-z 0-9 - _ . and is no UUID", printable(tag)))
		}
		if !slices.Contains(out, tag) {
			out = append(out, tag)
		}
	}
	return out, nil
}

// tagName is the server's own name of a template with a tag.
func tagName(name, tag string) string {
	if tag == "" || tag == defaultTag {
		return name
	}
	return name + tagMark + tag
}

// tagMark stands between a template's name and its tag.
const tagMark = "__"

// newBuildID draws an id in the form of a UUID, which carries the processors and
// the memory that its sandboxes are to have.
func newBuildID(cpu, memory int64) string {
	var b [16]byte
	rand.Read(b[:])
	binary.BigEndian.PutUint16(b[0:], uint16(max(0, min(cpu, 256))))
	binary.BigEndian.PutUint32(b[2:], uint32(max(0, min(memory, 1<<22))))
	return uuid(b)
}

// uuid writes 16 bytes as a UUID of version 8, whose form is our own.
func uuid(b [16]byte) string {
	b[6], b[8] = b[6]&0x0f|0x80, b[8]&0x3f|0x80
	x := hex.EncodeToString(b[:])
	return x[:8] + "-" + x[8:12] + "-" + x[12:16] + "-" + x[16:20] + "-" + x[20:]
}

// sizeOf is what newBuildID has put into an id.
func sizeOf(id string) (l sandbox.Limits) {
	b, err := hex.DecodeString(strings.ReplaceAll(id, "-", ""))
	if err != nil || len(b) != 16 {
		return l
	}
	l.CPUMilli = int64(binary.BigEndian.Uint16(b[0:])) * 1000
	l.MemoryBytes = int64(binary.BigEndian.Uint32(b[2:])) << 20
	return l
}

// startBuild begins a build.
func (d *Dialect) startBuild(w http.ResponseWriter, r *http.Request) error {
	var body buildBody
	if err := decode(w, r, &body); err != nil {
		return err
	}
	id := r.PathValue("build")
	if !uuidPattern.MatchString(id) {
		return &fault{status: http.StatusNotFound, text: fmt.Sprintf("build '%s' not found", printable(id))}
	}
	if body.Registry != nil && body.Registry.Type == "aws" {
		plain, err := d.aws.plain(r.Context(), body.Registry, body.FromImage)
		if err != nil {
			return err
		}
		body.Registry = plain
	}
	tags, ok := d.planned.tags(id)
	if !ok {
		return &fault{status: http.StatusNotFound, text: fmt.Sprintf("build '%s' not found: the server has started anew since it was announced", id)}
	}
	name, _ := untag(templateName(r.PathValue("template")))
	req, err := body.request(name, tags)
	if err != nil {
		return err
	}
	at, err := d.beginning(r, &req)
	if err != nil {
		return err
	}
	if req.Steps, req.Force, err = at.steps(body.Steps, req.Force); err != nil {
		return err
	}
	if size := sizeOf(id); size != (sandbox.Limits{}) {
		req.Limits = &size
	}
	if _, err := d.engine.StartBuild(r.Context(), id, req); err != nil {
		return err
	}
	writeEmpty(w, http.StatusAccepted)
	return nil
}

// buildStatus tells how a build goes. One that was announced and not begun waits.
func (d *Dialect) buildStatus(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("build")
	out := buildStatus{TemplateID: r.PathValue("template"), BuildID: id, Status: "waiting", LogEntries: []buildLine{}, Logs: []string{}}
	offset := 0
	if text := r.URL.Query().Get("logsOffset"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return invalid("logsOffset counts entries")
		}
		offset = n
	}
	b, err := d.engine.GetBuild(r.Context(), id, offset)
	if sandbox.KindOf(err) == sandbox.NotFound && uuidPattern.MatchString(id) {
		writeJSON(w, http.StatusOK, out)
		return nil
	}
	if err != nil {
		return err
	}
	out.Status = map[sandbox.BuildState]string{sandbox.BuildWaiting: "building", sandbox.BuildRunning: "building",
		sandbox.BuildReady: "ready", sandbox.BuildFailed: "error"}[b.State]
	for _, line := range b.Lines[:min(len(b.Lines), maxStatusLines)] {
		out.LogEntries = append(out.LogEntries, lineOf(line))
	}
	if b.State == sandbox.BuildFailed {
		out.Reason = reasonOf(&b)
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

func reasonOf(b *sandbox.Build) *buildReason {
	reason := &buildReason{Message: b.Error, Step: "base", LogEntries: []buildLine{}}
	switch {
	case b.FailedStep > 0:
		reason.Step = strconv.Itoa(b.FailedStep)
	case b.FailedText == "start":
		reason.Step = "finalize"
	}
	if b.Hint != "" {
		reason.Message += " (" + b.Hint + ")"
	}
	if command, ok := strings.CutPrefix(b.FailedText, runText); ok {
		if m := unknownUser.FindStringSubmatch(b.Error); m != nil {
			reason.Message = fmt.Sprintf("command failed: unauthenticated: invalid username: '%s'", m[1])
		}
		reason.Message = fmt.Sprintf("failed to run command '%s': %s", command, reason.Message)
	}
	return reason
}

// runText begins what a step is called that runs a command.
const runText = "RUN "

// unknownUser is what the engine says of a user that is not there.
var unknownUser = regexp.MustCompile(`no user "([^"]*)"`)

// buildFiles says whether the files of a copy are there, and where they go.
func (d *Dialect) buildFiles(w http.ResponseWriter, r *http.Request) error {
	hash := strings.ToLower(r.PathValue("hash"))
	ok, err := d.engine.HasContext(r.Context(), hash)
	if err != nil {
		return err
	}
	c, err := sandbox.CallerOf(r.Context())
	if err != nil {
		return err
	}
	until := time.Now().Add(uploadTime).Unix()
	url := fmt.Sprintf("%s/uploads/%s/%s?expires=%d&token=%s", d.self(r), c.Account, hash, until, d.uploadToken(c.Account, hash, until))
	writeJSON(w, http.StatusCreated, map[string]any{"present": ok, "url": url})
	return nil
}

// uploadTime is how long a URL for an upload serves.
const uploadTime = time.Hour

func (d *Dialect) uploadToken(account, hash string, until int64) string {
	return d.derive(fmt.Sprintf("upload %s %s %d", account, hash, until), "")
}

// self is the address of the control API, as the client reaches it.
func (d *Dialect) self(r *http.Request) string {
	scheme := "http"
	if r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" {
		scheme = "https"
	}
	prefix := Prefix
	if hostOf(r) == "api."+d.domain {
		prefix = ""
	}
	return scheme + "://" + r.Host + prefix
}

// uploadFiles takes the files of a copy. The URL itself is the permission.
func (d *Dialect) uploadFiles(w http.ResponseWriter, r *http.Request) error {
	account, hash, q := r.PathValue("account"), r.PathValue("hash"), r.URL.Query()
	until, err := strconv.ParseInt(q.Get("expires"), 10, 64)
	if err != nil || !same(q.Get("token"), d.uploadToken(account, hash, until)) || time.Now().Unix() > until {
		return &fault{status: http.StatusForbidden, text: "the URL is not valid, or no longer: ask for another"}
	}
	ctx := sandbox.WithCaller(r.Context(), sandbox.Caller{Account: account, Key: "upload", Scopes: []sandbox.Scope{sandbox.ScopeAdmin}})
	if _, _, err := d.engine.PutContext(ctx, hash, r.Body); err != nil {
		return err
	}
	writeEmpty(w, http.StatusNoContent)
	return nil
}

// tagTemplate gives a template more tags.
func (d *Dialect) tagTemplate(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		Target string   `json:"target"`
		Tags   []string `json:"tags"`
	}
	if err := decode(w, r, &body); err != nil {
		return err
	}
	tags, err := checkTags(body.Tags)
	if err != nil {
		return err
	}
	t, err := d.template(r, body.Target)
	if err != nil {
		return err
	}
	name, _ := untag(t.Name)
	for _, tag := range tags {
		if err := d.engine.CopyTemplate(r.Context(), t.Name, tagName(name, tag)); err != nil {
			return err
		}
	}
	writeJSON(w, http.StatusCreated, map[string]any{"buildID": madeBy(t), "tags": tags})
	return nil
}

func (d *Dialect) template(r *http.Request, name string) (sandbox.Template, error) {
	t, err := d.engine.Template(r.Context(), templateName(name))
	if kind := sandbox.KindOf(err); kind == sandbox.NotFound || kind == sandbox.Invalid {
		return t, noTemplate(name, err)
	}
	return t, err
}

// untagTemplate takes tags from a template.
func (d *Dialect) untagTemplate(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		Name string   `json:"name"`
		Tags []string `json:"tags"`
	}
	if err := decode(w, r, &body); err != nil {
		return err
	}
	name := templateName(body.Name)
	for _, tag := range body.Tags {
		err := d.engine.RemoveTemplate(r.Context(), tagName(name, strings.ToLower(tag)))
		if kind := sandbox.KindOf(err); kind == sandbox.NotFound || kind == sandbox.Invalid {
			return &fault{status: http.StatusNotFound, text: fmt.Sprintf("tag '%s' of template '%s' not found", printable(tag), printable(name)), err: err}
		}
		if err != nil {
			return err
		}
	}
	writeEmpty(w, http.StatusNoContent)
	return nil
}

// templateTags lists the tags of a template.
func (d *Dialect) templateTags(w http.ResponseWriter, r *http.Request) error {
	all, err := d.tagged(r, r.PathValue("template"))
	if err != nil {
		return err
	}
	type entry struct {
		Tag       string    `json:"tag"`
		BuildID   string    `json:"buildID"`
		CreatedAt time.Time `json:"createdAt"`
	}
	out := []entry{}
	for _, t := range all {
		_, tag := untag(t.Name)
		out = append(out, entry{tag, madeBy(t), t.Created})
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

// tagged returns what a client calls one template: all of its tags, the default one
// first, or the one that it names.
func (d *Dialect) tagged(r *http.Request, asked string) (out []sandbox.Template, err error) {
	if strings.Contains(asked, ":") {
		t, err := d.template(r, asked)
		return []sandbox.Template{t}, err
	}
	all, err := d.engine.Templates(r.Context())
	if err != nil {
		return nil, err
	}
	name, _ := untag(templateName(asked))
	for _, t := range all {
		switch base, tag := untag(t.Name); {
		case base != name:
		case tag == defaultTag:
			out = slices.Insert(out, 0, t)
		default:
			out = append(out, t)
		}
	}
	if len(out) == 0 {
		return nil, noTemplate(asked, nil)
	}
	return out, nil
}

func noTemplate(name string, err error) error {
	return &fault{status: http.StatusNotFound, text: fmt.Sprintf("template '%s' not found", printable(name)), err: err}
}
