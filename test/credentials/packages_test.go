package credentials

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"testing"
)

// pythonIndex serves the package "mine", version 1, as a simple index.
func pythonIndex(t *testing.T) http.Handler {
	t.Helper()
	const wheel = "mine-1-py3-none-any.whl"
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, text := range map[string]string{
		"mine.py":                        "said = 'installed'\n",
		"mine-1.dist-info/METADATA":      "Metadata-Version: 2.1\nName: mine\nVersion: 1\n",
		"mine-1.dist-info/WHEEL":         "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		"mine-1.dist-info/RECORD":        "",
		"mine-1.dist-info/top_level.txt": "mine\n",
	} {
		w, err := z.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path.Base(r.URL.Path) {
		case "mine":
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprintf(w, `<!DOCTYPE html><html><body><a href="/simple/files/%s">%s</a></body></html>`, wheel, wheel)
		case wheel:
			w.Write(b.Bytes())
		default:
			http.NotFound(w, r)
		}
	})
}

// npmRegistry serves the package "mine", version 1.0.0.
func npmRegistry(t *testing.T) http.Handler {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for name, text := range map[string]string{"package/package.json": `{"name":"mine","version":"1.0.0","main":"i.js"}`, "package/i.js": "module.exports='installed'"} {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if w.Close() != nil || z.Close() != nil {
		t.Fatal("the package cannot be written")
	}
	sum := sha512.Sum512(b.Bytes())
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		switch path.Base(r.URL.Path) {
		case "mine":
			json.NewEncoder(rw).Encode(map[string]any{"name": "mine", "dist-tags": map[string]string{"latest": "1.0.0"},
				"versions": map[string]any{"1.0.0": map[string]any{"name": "mine", "version": "1.0.0", "main": "i.js", "dist": map[string]string{
					"tarball": "https://api." + zone + "/npm/mine-1.0.0.tgz", "integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:])}}}})
		case "mine-1.0.0.tgz":
			rw.Write(b.Bytes())
		default:
			http.NotFound(rw, r)
		}
	})
}
