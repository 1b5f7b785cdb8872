package e2b

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/berth-dev/berth/test/rig"
)

// internal are classes of the packages that are no part of what their users call.
var internal = map[string]bool{"ConnectionConfig": true, "ApiClient": true, "EnvdApiClient": true, "VolumeConnectionConfig": true, "ClientFactory": true}

var (
	comments    = regexp.MustCompile(`(?s)/\*.*?\*/`)
	classes     = regexp.MustCompile(`(?ms)^declare (?:abstract )?class (\w+)[^\n]*\{\n(.*?)^\}`)
	methods     = regexp.MustCompile(`(?m)^  (?:static |async |abstract |get )*(\w+)(?:<[^>\n]*>)?\(`)
	functions   = regexp.MustCompile(`(?m)^declare function (\w+)`)
	notAMethod  = map[string]bool{"constructor": true}
	testedFiles = []string{"*.test.mjs", "*.bydomain.mjs", "setup.mjs"}
)

// TestEveryMethodIsTested: each public method and function of both packages is called by a test
// here, or named in the page for their users, which says why not.
func TestEveryMethodIsTested(t *testing.T) {
	packages := rig.Packages(t, ".")
	var text strings.Builder
	for _, pattern := range testedFiles {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			text.WriteString(read(t, f))
		}
	}
	page := read(t, filepath.Join(rig.Root(t), "docs", "from-e2b.md"))
	count := 0
	for _, declared := range []string{"e2b/dist/index.d.ts", "@e2b/code-interpreter/dist/index.d.ts"} {
		source := comments.ReplaceAllString(read(t, filepath.Join(packages, "node_modules", declared)), "")
		for _, m := range functions.FindAllStringSubmatch(source, -1) {
			if count++; !strings.Contains(text.String(), m[1]+"(") && !strings.Contains(page, "`"+m[1]+"`") {
				t.Errorf("%s is neither tested nor named in docs/from-e2b.md", m[1])
			}
		}
		for _, class := range classes.FindAllStringSubmatch(source, -1) {
			if internal[class[1]] {
				continue
			}
			seen := map[string]bool{}
			for _, m := range methods.FindAllStringSubmatch(class[2], -1) {
				if name := m[1]; !notAMethod[name] && !seen[name] {
					seen[name] = true
					count++
					if !strings.Contains(text.String(), "."+name) && !strings.Contains(page, "`"+name+"`") {
						t.Errorf("%s.%s is neither tested nor named in docs/from-e2b.md", class[1], name)
					}
				}
			}
		}
	}
	if count < 150 {
		t.Errorf("%d methods were found: the declarations are read wrongly", count)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
