package engine

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"path"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/berth-dev/berth/keystore"
	"github.com/berth-dev/berth/sandbox"
)

// Where Java looks for whom it trusts: in one list that a distribution keeps for all
// its Javas, or in one of each's own.
var (
	javaLists = []string{
		"/etc/ssl/certs/java/cacerts",                 // Debian and kin
		"/etc/pki/ca-trust/extracted/java/cacerts",    // Fedora and kin
		"/var/lib/ca-certificates/java-cacerts",       // openSUSE
		"/etc/ca-certificates/extracted/java-cacerts", // Arch
	}
	javaFolders  = []string{"/usr/lib/jvm", "/opt/java", "/usr/java", "/root/.sdkman/candidates/java", "/home/user/.sdkman/candidates/java"}
	mixedFolders = []string{"/opt", "/usr/local"} // of many things
	javaOwn      = []string{"lib/security/cacerts", "jre/lib/security/cacerts"}
)

const (
	javaName = "berth-sandbox"

	maxJavas   = 32 // that are looked at in a folder
	javaAtOnce = 4  // questions to the guest
)

// addToJavas adds a certificate to every list of Java's. What Java cannot be given
// concerns Java alone: left says so, and err is that nothing can be done now.
func addToJavas(ctx context.Context, guest files, cert []byte) (left string, err error) {
	block, _ := pem.Decode(cert)
	if block == nil {
		return "", sandbox.Errorf("read certificate", sandbox.Internal, "%w", errors.New("it is not PEM"))
	}
	homes, err := javaHomes(ctx, guest)
	if err != nil {
		return "", err
	}
	lists := append([]string{}, javaLists...)
	for _, home := range homes {
		for _, own := range javaOwn {
			lists = append(lists, path.Join(home, own))
		}
	}
	failed := make([]string, len(lists))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(javaAtOnce)
	for n, list := range lists {
		g.Go(func() (err error) {
			failed[n], err = addToJava(ctx, guest, list, block.Bytes)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return "", err
	}
	for _, f := range failed {
		if f != "" {
			return f, nil // one is enough to know
		}
	}
	return "", nil
}

// javaHomes are the folders that may be Javas.
func javaHomes(ctx context.Context, guest files) ([]string, error) {
	folders := append(append([]string{}, javaFolders...), mixedFolders...)
	found := make([][]string, len(folders))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(javaAtOnce)
	for n, folder := range folders {
		g.Go(func() error {
			entries, _, err := guest.ListDir(ctx, folder, 1, maxJavas, "")
			if k := sandbox.KindOf(err); k == sandbox.NotFound || k == sandbox.Invalid { // it is not there, or no folder
				return nil
			}
			for _, e := range entries {
				if e.Type == sandbox.TypeDir && (n < len(javaFolders) || soundsLikeJava(path.Base(e.Path))) {
					found[n] = append(found[n], path.Join(folder, path.Base(e.Path)))
				}
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	var all []string
	for _, f := range found {
		all = append(all, f...)
	}
	return all, nil
}

func soundsLikeJava(name string) bool {
	name = strings.ToLower(name)
	for _, part := range []string{"java", "jdk", "jre", "jvm", "graal"} {
		if strings.Contains(name, part) {
			return true
		}
	}
	return false
}

// addToJava adds a certificate to a list, if it is there.
func addToJava(ctx context.Context, guest files, list string, cert []byte) (left string, err error) {
	is, err := isThere(ctx, guest, list, sandbox.TypeFile)
	if err != nil || !is {
		return "", err
	}
	text, err := read(ctx, guest, list)
	if err != nil {
		return "", err
	}
	changed, err := keystore.Add(text, javaName, cert)
	if err != nil {
		return list + ": " + err.Error(), nil
	}
	if bytes.Equal(changed, text) {
		return "", nil
	}
	return "", write(ctx, guest, list, changed)
}
