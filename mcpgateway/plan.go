package mcpgateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Bounds of a configuration.
const (
	maxConfig  = 1 << 20 // bytes
	maxServers = 64
)

// plan says how one server is made ready and started.
type plan struct {
	name string   // its key in the configuration
	need need     // what must be installed first
	argv []string // as the account; beneath the gateway's root if the program's path is relative
	dir  string   // where it starts; "" is the account's home
	env  []string // NAME=VALUE, beside the gateway's own
}

// need is what a server is installed from: one of the three, or nothing.
type need struct {
	npm, pypi  string // a package and its version
	beside     string // another requirement of pypi's; may be empty
	repository string // OWNER/NAME
	command    string // what is run in the repository once it is there; may be empty
}

// ownServer is the configuration of a server that has a repository.
type ownServer struct {
	Run     string            `json:"runCmd"`
	Install string            `json:"installCmd"`
	Env     map[string]string `json:"envs"`
}

var (
	repositoryKey = regexp.MustCompile(`^github/([A-Za-z0-9][A-Za-z0-9-]{0,38}/[A-Za-z0-9_.-]{1,100})$`)
	variableName  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
)

// parse reads a configuration: an object that has each server's own beneath its name.
// The plans come in the order of their names.
func parse(config []byte) ([]plan, error) {
	if len(config) > maxConfig {
		return nil, fmt.Errorf("the configuration has %d bytes, at most %d are taken", len(config), maxConfig)
	}
	var servers map[string]json.RawMessage
	if err := json.Unmarshal(config, &servers); err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	if len(servers) == 0 {
		return nil, errors.New("the configuration names no server")
	}
	if len(servers) > maxServers {
		return nil, fmt.Errorf("the configuration names %d servers, at most %d are started", len(servers), maxServers)
	}
	var plans []plan
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		p, err := planOf(name, servers[name])
		if err != nil {
			return nil, err
		}
		plans = append(plans, p)
	}
	return plans, nil
}

func planOf(name string, config json.RawMessage) (plan, error) {
	if strings.HasPrefix(name, "github/") {
		return planOwn(name, config)
	}
	r, ok := catalogue[name]
	if !ok {
		return plan{}, unknown(name)
	}
	var keys map[string]any
	d := json.NewDecoder(bytes.NewReader(config))
	d.UseNumber()
	if err := d.Decode(&keys); err != nil {
		return plan{}, fmt.Errorf("server %s: read its configuration: %w", name, err)
	}
	return r.plan(name, keys)
}

// planOwn is the plan of a server with a repository.
func planOwn(name string, config json.RawMessage) (plan, error) {
	m := repositoryKey.FindStringSubmatch(name)
	if m == nil || path.Base(m[1]) == "." || path.Base(m[1]) == ".." {
		return plan{}, fmt.Errorf("server %.200q: name a repository as github/OWNER/NAME", name)
	}
	var own ownServer
	d := json.NewDecoder(bytes.NewReader(config))
	d.DisallowUnknownFields()
	if err := d.Decode(&own); err != nil {
		return plan{}, fmt.Errorf("server %s: read its configuration: %w", name, err)
	}
	if strings.TrimSpace(own.Run) == "" {
		return plan{}, fmt.Errorf("server %s: runCmd is missing: it is the command that starts the server", name)
	}
	p := plan{name: name, need: need{repository: m[1], command: own.Install}, argv: []string{"/bin/bash", "-c", own.Run}}
	for _, k := range slices.Sorted(maps.Keys(own.Env)) {
		if !variableName.MatchString(k) {
			return plan{}, fmt.Errorf("server %s: %.130q is no name of a variable", name, k)
		}
		p.env = append(p.env, k+"="+own.Env[k])
	}
	return p, nil
}

func (r recipe) need() need { return need{npm: r.npm, pypi: r.pypi, beside: r.beside} }

// plan fills the recipe in.
func (r recipe) plan(name string, keys map[string]any) (plan, error) {
	p := plan{name: name, need: r.need(), env: slices.Clone(r.fixed)}
	values := map[string][]string{}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if !r.takes(key) {
			return plan{}, fmt.Errorf("server %s: it takes no %.100q", name, key)
		}
		v, err := texts(keys[key])
		if err != nil {
			return plan{}, fmt.Errorf("server %s: %s: %w", name, key, err)
		}
		if len(v) == 0 || v[0] == "" {
			continue
		}
		values[key] = v
		if variable := r.env[key]; variable != "" {
			p.env = append(p.env, variable+"="+strings.Join(v, ","))
		}
	}
	for _, key := range r.needs {
		if len(values[key]) == 0 {
			return plan{}, fmt.Errorf("server %s: %s is missing", name, key)
		}
	}
	p.argv = []string{r.place()}
	for _, a := range r.args {
		if key, ok := strings.CutPrefix(a, "{"); ok {
			p.argv = append(p.argv, values[strings.TrimSuffix(key, "}")]...)
			continue
		}
		p.argv = append(p.argv, a)
	}
	return p, nil
}

// place is where the recipe's program lies, beneath the gateway's root.
func (r recipe) place() string {
	switch {
	case r.npm != "":
		return path.Join(folderOf(r.npm), "node_modules/.bin", r.program)
	case r.pypi != "":
		return path.Join(folderOf(r.pypi), "bin", r.program)
	}
	return path.Join(r.kind, r.program)
}

// folderOf is where a package is installed, beneath the gateway's root.
func folderOf(spec string) string {
	return path.Join("servers", strings.Map(func(c rune) rune {
		if c == '/' || c == '=' {
			return '_'
		}
		return c
	}, spec))
}

// texts are a value's words: of a text, a number, a truth or a list of texts.
func texts(value any) ([]string, error) {
	switch v := value.(type) {
	case nil:
		return nil, nil
	case string:
		if strings.ContainsRune(v, 0) {
			return nil, errors.New("it holds a NUL")
		}
		return []string{v}, nil
	case json.Number:
		return []string{v.String()}, nil
	case bool:
		return []string{fmt.Sprint(v)}, nil
	case []any:
		var all []string
		for _, e := range v {
			s, ok := e.(string)
			if !ok || s == "" || strings.ContainsRune(s, 0) {
				return nil, errors.New("it is to be a list of texts")
			}
			all = append(all, s)
		}
		return all, nil
	}
	return nil, errors.New("it is to be a text, a number, true, false or a list of texts")
}
