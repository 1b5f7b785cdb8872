package berth_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
)

const module = "github.com/berth-dev/berth/"

// floors gives each package its floor: an import must point to a lower one.
// The longest matching prefix counts.
var floors = []struct {
	prefix string
	floor  int
}{
	{"sandbox", 0}, {"guestapi", 1}, {"screen", 1}, {"tarball", 1},
	{"driver", 10}, {"record", 10}, {"blob", 10},
	{"driver/drivertest", 21}, {"record/recordtest", 11}, {"blob/blobtest", 11},
	{"screen", 15}, {"tarball", 15}, {"tunnel", 15}, {"publicip", 15}, {"keystore", 15}, {"keylock", 15}, {"handover", 15}, {"refusal", 15}, {"mcpgateway", 15}, {"timerslack", 15}, // libraries that know no sandbox
	{"guest", 20}, {"guestclient", 20}, {"netgw", 20}, {"audit", 20}, {"netgw/intercept", 21}, {"secret", 20}, {"record/bolt", 20}, {"blob/disk", 20}, {"blob/s3", 20}, {"blob/memory", 20}, {"blob/s3/s3test", 21}, {"snapshot", 20},
	{"image", 21}, {"loopfs", 15}, {"volume", 20}, {"dockerfile", 20}, {"account", 20}, {"config", 20}, {"pass", 20}, {"meter", 20}, {"metrics", 20},
	{"driver/gvisor/runsc", 21}, {"driver/gvisor/runsc/called", 15}, {"driver/gvisor", 22}, {"driver/fake", 22},
	{"engine", 30}, {"cluster", 40},
	{"client", 41}, {"api", 50}, {"dialect", 51}, {"edge", 50}, {"sshd", 50}, {"mcp", 50}, {"dash", 50},
	{"cmd", 60}, {"bench", 60}, {"test", 60}, {"tools", 60},
}

// narrow lists what some packages may import beyond their floor's rule: the
// vocabulary knows nothing, and the guest stays small.
var narrow = map[string][]string{
	"sandbox":          {},
	"guestapi":         {},
	"screen":           {},
	"tarball":          {},
	"keylock":          {},
	"keystore":         {},
	"refusal":          {},
	"guest":            {"guestapi", "screen", "tarball", "refusal"},
	"cmd/berth-guest":  {"guest", "guestapi"},
	"cmd/berth-engine": {"driver/gvisor/runsc"},
	"mcpgateway":       {},
	"cmd/berth-mcp":    {"mcpgateway"},
	"client":           {"sandbox", "tunnel"},
	"config":           {"sandbox"},
	"api":              {"sandbox", "engine", "tunnel"},
}

func TestImportsPointDown(t *testing.T) {
	for _, p := range packages(t) {
		rel := strings.TrimPrefix(p.ImportPath, module)
		if rel+"/" == module {
			continue // the root holds this test alone
		}
		from, ok := floor(rel)
		if !ok {
			t.Errorf("%s has no floor: add it to the table", rel)
			continue
		}
		allowed, isNarrow := narrowed(rel)
		for _, imp := range p.Imports {
			to, isOurs := strings.CutPrefix(imp, module)
			if !isOurs {
				if rel == "sandbox" && strings.Contains(imp, ".") {
					t.Errorf("sandbox imports %s: the vocabulary uses the standard library only", imp)
				}
				continue
			}
			if f, ok := floor(to); !ok || (f >= from && !within(rel, to)) {
				t.Errorf("%s (floor %d) imports %s (floor %d): imports point down", rel, from, to, f)
			}
			if isNarrow && !within(rel, to) && !hasPrefixOf(to, allowed) {
				t.Errorf("%s imports %s: it may import only %v", rel, to, allowed)
			}
		}
	}
}

// TestBodiesAreNamedOnlyWhereTheyAreWired keeps concrete bodies out of the floors
// that know contracts only.
func TestBodiesAreNamedOnlyWhereTheyAreWired(t *testing.T) {
	bodies := []string{"driver/gvisor", "driver/fake", "record/bolt", "blob/disk", "blob/s3", "blob/memory"}
	for _, p := range packages(t) {
		rel := strings.TrimPrefix(p.ImportPath, module)
		for _, imp := range p.Imports {
			to, ours := strings.CutPrefix(imp, module)
			if !ours || !hasPrefixOf(to, bodies) || within(rel, to) {
				continue
			}
			if !hasPrefixOf(rel, []string{"cmd", "bench", "test", "tools"}) {
				t.Errorf("%s imports %s: only commands name concrete bodies", rel, to)
			}
		}
	}
}

// within reports whether one of a and b is beneath the other.
func within(a, b string) bool {
	return a == b || strings.HasPrefix(a, b+"/") || strings.HasPrefix(b, a+"/")
}

func hasPrefixOf(p string, list []string) bool {
	for _, l := range list {
		if p == l || strings.HasPrefix(p, l+"/") {
			return true
		}
	}
	return false
}

func floor(rel string) (int, bool) {
	best, found := -1, 0
	for _, f := range floors {
		if hasPrefixOf(rel, []string{f.prefix}) && len(f.prefix) > best {
			best, found = len(f.prefix), f.floor
		}
	}
	return found, best >= 0
}

func narrowed(rel string) ([]string, bool) {
	for p, allowed := range narrow {
		if hasPrefixOf(rel, []string{p}) {
			return allowed, true
		}
	}
	return nil, false
}

type pkg struct {
	ImportPath string
	Imports    []string
}

func packages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports", "./...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []pkg
	dec := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}
