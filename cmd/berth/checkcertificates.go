package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/berth-dev/berth/edge/certs"
)

// certificates looks at those that a server with --acme has got for domains, or has not.
// Without such a server there is nothing to say.
func (x *examination) certificates(context.Context) []finding {
	const check = "certificates"
	all, err := certs.Standings(filepath.Join(x.data, acmeDir))
	if err != nil {
		return one(check, warn, "move that file away: the server then gets a new certificate", "%v", err)
	}
	var (
		found []finding
		first certs.Standing // to end, of those that are well
		well  int
	)
	now := time.Now()
	for _, s := range all {
		switch {
		case !s.Failed.IsZero():
			found = append(found, one(check, warn, "port 80 of the domain must lead to --listen, or port 443 to --https-listen; the next visit tries again", "%s", troubled(s, now))...)
		case now.After(s.Expires):
			found = append(found, one(check, warn, "nobody visits it: a visit renews it, and berth domain rm gives it up", "%s: it ended %s ago", s.Name, age(now.Sub(s.Expires)))...)
		default:
			if well++; first.Name == "" || s.Expires.Before(first.Expires) {
				first = s
			}
		}
	}
	if well > 0 {
		found = append(found, one(check, good, "", "%d of domains; that of %s ends first, in %s", well, first.Name, age(first.Expires.Sub(now)))...)
	}
	return found
}

// troubled says of a name what did not succeed.
func troubled(s certs.Standing, now time.Time) string {
	what := "there is none"
	if now.Before(s.Expires) {
		what = fmt.Sprintf("it is not renewed, and ends in %s", age(s.Expires.Sub(now)))
	} else if !s.Expires.IsZero() {
		what = fmt.Sprintf("it is not renewed, and ended %s ago", age(now.Sub(s.Expires)))
	}
	return fmt.Sprintf("%s: %s: %s", s.Name, what, s.Reason)
}
