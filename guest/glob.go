package guest

import (
	"path"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// Bounds on patterns; each ** and { multiplies the work of a match.
const (
	maxGlobBytes = 1024
	maxGlobForks = 8
	maxGlobs     = 64
)

// globs are patterns of paths beneath a folder.
type globs []string

// parseGlobs checks patterns. A slash at the front or the end is only for show.
func parseGlobs(patterns []string) (globs, error) {
	if len(patterns) > maxGlobs {
		return nil, refuse(invalid, "", "%d patterns, at most %d are taken", len(patterns), maxGlobs)
	}
	var g globs
	for _, p := range patterns {
		if len(p) > maxGlobBytes || strings.Count(p, "**") > maxGlobForks || strings.Count(p, "{") > maxGlobForks {
			return nil, refuse(invalid, "use fewer of ** and {", "the pattern %.80q is too long", p)
		}
		anchored := strings.HasPrefix(p, "/")
		q := strings.Trim(p, "/")
		if q == "" || !doublestar.ValidatePattern(q) {
			return nil, refuse(invalid, "a pattern has * ? [a-z] {a,b} and **", "the pattern %.80q is malformed", p)
		}
		if anchored && !strings.Contains(q, "/") {
			q = "/" + q
		}
		g = append(g, q)
	}
	return g, nil
}

// match reports whether one of the patterns is that of a path. One without a
// slash is a name's, at any depth.
func (g globs) match(rel string) bool {
	for _, p := range g {
		name := rel
		if !strings.Contains(p, "/") {
			name = path.Base(rel)
		}
		if doublestar.MatchUnvalidated(strings.TrimPrefix(p, "/"), name) {
			return true
		}
	}
	return false
}

// covers reports whether rel or a folder above it matches.
func (g globs) covers(rel string) bool {
	if len(g) == 0 {
		return false
	}
	for ; rel != "." && rel != "/" && rel != ""; rel = path.Dir(rel) {
		if g.match(rel) {
			return true
		}
	}
	return false
}

// reach is how deep beneath its folder a pattern can match.
func (g globs) reach() int {
	depth := 1
	for _, p := range g {
		if !strings.Contains(p, "/") || strings.Contains(p, "**") {
			return maxDepth
		}
		depth = max(depth, strings.Count(p, "/")+1)
	}
	return depth
}
