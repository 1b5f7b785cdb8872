package kernel

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Spec says how a kernel is started: a kernelspec of Jupyter.
type Spec struct {
	Name     string // of its folder
	Language string // in the names of this package: "python", "typescript"
	Argv     []string
	Env      map[string]string
	ByName   bool   // it is interrupted by a message, not by a signal
	TCP      bool   // it knows no other transport
	Prelude  string // code that it runs before any other, unseen; "" for none
	Fence    string // code that shows "{nonce}" on each way that what code shows takes; "" for none: in order
}

// Bounds on kernelspecs.
const (
	maxSpecs    = 256
	maxSpecFile = 64 << 10
	maxSpecArgs = 64
)

// Specs reads the kernelspecs beneath folders, the first of a name counts. What is
// malformed is left out.
func Specs(folders []string) []Spec {
	var all []Spec
	seen := map[string]bool{}
	for _, folder := range folders {
		dir, err := os.Open(folder)
		if err != nil {
			continue
		}
		names, _ := dir.Readdirnames(maxSpecs)
		dir.Close()
		slices.Sort(names)
		for _, name := range names {
			if seen[name] || len(all) == maxSpecs {
				continue
			}
			if s, err := readSpec(filepath.Join(folder, name, "kernel.json")); err == nil {
				s.Name, seen[name] = name, true
				for i, a := range s.Argv {
					s.Argv[i] = strings.ReplaceAll(a, "{resource_dir}", filepath.Join(folder, name))
				}
				all = append(all, s)
			}
		}
	}
	return all
}

// readSpec reads a file that anybody inside may have made.
func readSpec(path string) (Spec, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return Spec{}, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() || info.Size() > maxSpecFile {
		return Spec{}, errors.New("no kernelspec")
	}
	b, err := io.ReadAll(io.LimitReader(f, maxSpecFile))
	if err != nil {
		return Spec{}, err
	}
	return parseSpec(b)
}

func parseSpec(b []byte) (Spec, error) {
	var file struct {
		Argv      []string          `json:"argv"`
		Language  string            `json:"language"`
		Interrupt string            `json:"interrupt_mode"`
		Env       map[string]string `json:"env"`
		Metadata  struct {
			Transport string `json:"berth_transport"`
			Prelude   string `json:"berth_prelude"`
			Fence     string `json:"berth_fence"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(b, &file); err != nil {
		return Spec{}, err
	}
	hasFile := slices.ContainsFunc(file.Argv, func(a string) bool { return strings.Contains(a, "{connection_file}") })
	if len(file.Argv) == 0 || len(file.Argv) > maxSpecArgs || file.Argv[0] == "" || !hasFile || file.Language == "" {
		return Spec{}, errors.New("a kernelspec lacks argv, {connection_file} or language")
	}
	return Spec{Language: strings.ToLower(file.Language), Argv: file.Argv, Env: file.Env,
		ByName: file.Interrupt == "message", Prelude: file.Metadata.Prelude, Fence: file.Metadata.Fence,
		TCP: file.Metadata.Transport == "tcp" || filepath.Base(file.Argv[0]) == "deno" || strings.EqualFold(file.Language, "r")}, nil
}

// standIns are languages whose kernels run another one too.
var standIns = map[string]string{"javascript": "typescript"}

// ErrNoKernel is of a language that no kernel is installed for.
var ErrNoKernel = errors.New("no kernel is installed")

// find picks the kernel of a language: one of its own, else a stand-in's.
func find(all []Spec, language string) (Spec, error) {
	for _, want := range []string{language, standIns[language]} {
		for _, s := range all {
			if want != "" && s.Language == want {
				return s, nil
			}
		}
	}
	return Spec{}, fmt.Errorf("%w for %q", ErrNoKernel, language)
}

// languages lists what the kernels run, in order.
func languages(all []Spec) []string {
	var out []string
	for _, s := range all {
		out = append(out, s.Language)
		for language, by := range standIns {
			if by == s.Language {
				out = append(out, language)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
