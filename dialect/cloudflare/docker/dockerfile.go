package docker

import "regexp"

// Images says which templates stand for the images that a Dockerfile names, itself or
// by an ARG, given as args or not.
func Images(dockerfile string, args map[string]string) map[string]string {
	all := map[string]string{}
	for _, m := range imageNames.FindAllStringSubmatch(dockerfile, -1) {
		ref := m[1] + m[2]
		if name, err := TemplateName(ref); err == nil {
			all[ref] = name
		}
	}
	own := func(ref string) {
		if vendorImage.MatchString(ref) {
			all[ref] = ownTemplate(ref)
		}
	}
	for _, m := range argDefaults.FindAllStringSubmatch(dockerfile, -1) {
		own(m[1])
	}
	for _, ref := range args {
		own(ref)
	}
	return all
}

// imageNames finds what FROM and COPY --from name.
var imageNames = regexp.MustCompile(`(?im)^\s*FROM\s+(?:--\S+\s+)*(\S+)|--from=(\S+)`)

// argDefaults finds what an ARG is without being given.
var argDefaults = regexp.MustCompile(`(?im)^\s*ARG\s+[A-Za-z_][A-Za-z0-9_]*="?([^\s"]+)"?\s*$`)

// Standalone is a Dockerfile that takes the vendor's program out of the vendor's image,
// to put it before one of its own: here that program is served from outside, so a script
// stands in its place that runs what follows it.
func Standalone(dockerfile string) string {
	return programCopies.ReplaceAllString(dockerfile, `RUN printf '%s\n' '#!/bin/sh' 'exec "$$@"' > $1 && chmod 755 $1`)
}

var programCopies = regexp.MustCompile(`(?im)^[ \t]*COPY[ \t]+(?:--\S+[ \t]+)*--from=\S+[ \t]+(?:--\S+[ \t]+)*/container-server/sandbox(?:-musl)?[ \t]+(/[A-Za-z0-9_./-]+)[ \t]*\r?$`)
