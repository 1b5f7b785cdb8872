package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/berth-dev/berth/sandbox"
)

// clients has the published clients of the dialects take times, each beside the native
// API's in turn: the scripts test/clients/*/bench.mjs, run with the packages that their
// folders pin. It wants node and npm, and is run from the module's root.
func clients(ctx context.Context, s *server) (all []row, err error) {
	scripts, err := filepath.Glob("test/clients/*/bench.mjs") // those of deeper folders are measures of their own
	if err != nil || len(scripts) == 0 {
		return nil, fmt.Errorf("no test/clients/*/bench.mjs here: run it from the module's root (%v)", err)
	}
	if _, err := s.Template(ctx, sandbox.CodeTemplate); err != nil {
		if _, err := s.BuildTemplate(ctx, sandbox.BuildRequest{Name: sandbox.CodeTemplate, From: "distribution:bookworm+code"}, nil); err != nil {
			return nil, err
		}
	}
	for _, script := range scripts {
		rows, err := s.script(ctx, script)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", script, err)
		}
		all = append(all, rows...)
	}
	return all, nil
}

// script runs one script in a folder of its own, beside the others of its folder, and
// reads the rows that it prints.
func (s *server) script(ctx context.Context, script string, env ...string) (all []row, err error) {
	dir, err := os.MkdirTemp("", "berth-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	files, err := filepath.Glob(filepath.Join(filepath.Dir(script), "*.mjs"))
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"package.json", "package-lock.json"} {
		files = append(files, filepath.Join(filepath.Dir(script), name))
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, filepath.Base(file)), b, 0o644)
		}
		if err != nil {
			return nil, err
		}
	}
	npm := exec.CommandContext(ctx, "npm", "ci", "--prefer-offline", "--no-audit", "--no-fund")
	npm.Dir = dir
	if out, err := npm.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("npm ci: %w: %s", err, bytes.TrimSpace(out))
	}
	node := exec.CommandContext(ctx, "node", filepath.Base(script))
	node.Dir, node.Stderr = dir, os.Stderr
	node.Env = append(append(os.Environ(), "BERTH_URL="+s.url, "BERTH_API_KEY="+s.key), env...)
	out, err := node.Output()
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(out)) {
		var one struct {
			Name, Unit string
			Samples    []float64
		}
		if err := json.Unmarshal([]byte(line), &one); err != nil || len(one.Samples) == 0 {
			return nil, fmt.Errorf("%q is no row: %v", line, err)
		}
		all = append(all, median(one.Name, one.Unit, one.Samples))
	}
	return all, nil
}
