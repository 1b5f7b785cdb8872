package api_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

// TestFileTools walks through the routes beyond reading and writing.
func TestFileTools(t *testing.T) {
	v := visit(t)
	files := v.create("") + "/files"
	v.do("PUT", files+"?path=/a/b/one.go&parents=true", "package one", 200)
	v.do("PUT", files+"?path=/a/two.txt", "0123", 200)
	v.do("PUT", files+"?path=/a/two.txt&append=true", "45", 200)
	if fi := into[sandbox.FileInfo](t, v.do("PUT", files+"?path=/a/two.txt&at=1", "xy", 200)); fi.Size != 6 {
		t.Errorf("written into: %+v", fi)
	}
	if b := v.do("GET", files+"?path=/a/two.txt", "", 200); string(b) != "0xy345" {
		t.Errorf("read %q", b)
	}
	v.do("PUT", files+"?path=/a/two.txt&at=1&append=true", "xy", 400)
	v.do("PUT", files+"?path=/a/two.txt&at=-1", "xy", 400)

	found := into[wire.Files](t, v.do("GET", files+"/list?path=/a&glob=**/*.go", "", 200))
	if len(found.Entries) != 1 || found.Entries[0].Path != "/a/b/one.go" {
		t.Errorf("found %+v", found)
	}
	v.do("GET", files+"/list?path=/a&glob=%5B", "", 400)

	const at = "2001-02-03T04:05:06.000000007Z"
	fi := into[sandbox.FileInfo](t, v.do("POST", files+"/change", `{"path":"/a/two.txt","mode":384,"modified":"`+at+`"}`, 200))
	if fi.Mode != 0o600 || fi.Modified.UTC().Format("2006-01-02T15:04:05.999999999Z") != at {
		t.Errorf("changed %+v", fi)
	}
	v.do("POST", files+"/change", `{"path":"/a/new","mode":384}`, 404)
	v.do("POST", files+"/change", `{"path":"/a/new","create":true}`, 200)
	v.do("POST", files+"/change", `{"path":"/a"}`, 400)
	v.do("POST", files+"/change", `{"path":"/a","mode":5000}`, 400)

	v.do("POST", files+"/copy", `{"from":"/a","to":"/c"}`, 400)
	v.do("POST", files+"/copy", `{"from":"/a","to":"/c","recursive":true}`, 200)
	v.do("POST", files+"/copy", `{"from":"/a","to":"/a/b/c","recursive":true}`, 400)
	v.do("POST", files+"/copy", `{"from":"/a/two.txt","to":"/c/two.txt"}`, 409)
	if fi := into[sandbox.FileInfo](t, v.do("GET", files+"/stat?path=/c/two.txt", "", 200)); fi.Mode != 0o600 || fi.Modified.Year() != 2001 {
		t.Errorf("copied %+v", fi)
	}
	if fi := into[sandbox.FileInfo](t, v.do("POST", files+"/link", `{"path":"/a/l","target":"two.txt"}`, 200)); fi.Target != "two.txt" {
		t.Errorf("linked %+v", fi)
	}
	v.do("POST", files+"/link", `{"path":"/a/l","target":"b"}`, 409)
	v.do("POST", files+"/link", `{"path":"/a/l","target":"b","replace":true}`, 200)

	h := into[sandbox.FileHash](t, v.do("GET", files+"/hash?path=/a/b/one.go", "", 200))
	if h.SHA256 != "4a4bad54a16ed5cc3ebf92ca77a6b5ff26f6a8b1bcdc1e5ccd7d4dcd4d2c7d90" && h.Size != 11 {
		t.Errorf("hash %+v", h)
	}
	v.do("GET", files+"/hash?path=/a", "", 400)
	testAttributes(t, v, files)
}

func testAttributes(t *testing.T, v *visitor, files string) {
	r, err := v.c.Do(v.s.Request(t, "POST", files+"/attributes", `{"path":"/a/two.txt","set":{"lang":"go"},"set_b64":{"raw":"/w=="}}`))
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r.Body)
	r.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	if r.StatusCode == http.StatusNotImplemented {
		t.Logf("LOUDLY: the file system of this test keeps no attributes: %s", b)
		return
	}
	all := into[wire.Attributes](t, b)
	if all.Attributes["lang"] != "go" || !bytes.Equal(all.AttributesB64["raw"], []byte{0xff}) {
		t.Errorf("attributes %s", b)
	}
	v.do("POST", files+"/attributes", `{"path":"/a/two.txt","remove":["lang","none"]}`, 200)
	if all := into[wire.Attributes](t, v.do("GET", files+"/attributes?path=/a/two.txt", "", 200)); len(all.Attributes) != 0 || len(all.AttributesB64) != 1 {
		t.Errorf("attributes %+v", all)
	}
	v.do("POST", files+"/attributes", `{"path":"/a/two.txt","set":{"":"x"}}`, 400)
}

// TestRawNames: names that are not UTF-8 keep their bytes, in both directions.
func TestRawNames(t *testing.T) {
	v := visit(t)
	files := v.create("") + "/files"
	const name = "/d\xff/n\xc3"
	coded := base64.StdEncoding.EncodeToString([]byte(name))
	fi := into[sandbox.FileInfo](t, v.do("PUT", files+"?parents=true&path_b64="+url.QueryEscape(coded), "x", 200))
	if fi.Path != name || fi.Name != "n\xc3" {
		t.Errorf("%+v", fi)
	}
	for _, q := range []string{"path_b64=" + url.QueryEscape(coded), "path_b64=" + base64.RawURLEncoding.EncodeToString([]byte(name)), "path=" + url.QueryEscape(name)} {
		if b := v.do("GET", files+"?"+q, "", 200); string(b) != "x" {
			t.Errorf("%s: %q", q, b)
		}
	}
	b := v.do("GET", files+"/list?path=/&depth=2", "", 200)
	if !strings.Contains(string(b), `"path_b64":"`+coded+`"`) {
		t.Errorf("listed %s", b)
	}
	v.do("POST", files+"/move", `{"from_b64":"`+coded+`","to":"/plain"}`, 204)
	v.do("POST", files+"/mkdir", `{"path_b64":"`+coded+`x"}`, 400)
	v.do("GET", files+"?path=/plain&path_b64=L3g=", "", 400)
	v.do("GET", files+"?path_b64=%25", "", 400)
	if s := string(v.do("GET", files+"/stat?path=/plain", "", 200)); strings.Contains(s, "b64") {
		t.Errorf("an ordinary name: %s", s)
	}
}

func tarStream(t *testing.T, names ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, n := range names {
		err := w.WriteHeader(&tar.Header{Name: n, Typeflag: tar.TypeReg, Mode: 0o640, Size: 4})
		_, werr := io.WriteString(w, "text")
		if err := errors.Join(err, werr); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestArchives(t *testing.T) {
	v := visit(t)
	files := v.create("") + "/files"
	u := into[sandbox.Unpacked](t, v.do("PUT", files+"/archive?path=/new/place", string(tarStream(t, "a/b", "c")), 200))
	if u != (sandbox.Unpacked{Files: 2, Bytes: 8}) {
		t.Errorf("unpacked %+v", u)
	}
	h, b := v.send(v.s.Request(t, "GET", files+"/archive?path=/new&gzip=true", ""), 200)
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil || h.Get("Content-Type") != "application/gzip" {
		t.Fatal(h, err)
	}
	names := map[string]int64{}
	for r := tar.NewReader(z); ; {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names[e.Name] = e.Mode & 0o777
	}
	if len(names) != 5 || names["place/a/b"] != 0o640 || names["./"] == 0 {
		t.Errorf("packed %v", names)
	}
	u = into[sandbox.Unpacked](t, v.do("PUT", files+"/archive?path=/again", string(b), 200))
	if u.Files != 2 || u.Folders != 3 {
		t.Errorf("unpacked from gzip: %+v", u)
	}
	for what, body := range map[string][]byte{
		"upwards": tarStream(t, "../x"), "absolute": tarStream(t, "/x"), "cut": tarStream(t, "x")[:600],
		"no tar": []byte(strings.Repeat("x", 2000)), "cut gzip": b[:len(b)-10]} {
		if e := into[wire.Error](t, v.do("PUT", files+"/archive?path=/bad", string(body), 400)); e.Error.Hint == "" {
			t.Errorf("%s: %+v has no hint", what, e)
		}
	}
	v.do("GET", files+"/stat?path=/x", "", 404)
	v.do("GET", files+"/archive?path=/none", "", 404)
	v.do("PUT", files+"/archive?path=/new/place/c", string(tarStream(t, "x")), 409)
}

func FuzzPath(f *testing.F) {
	for _, s := range []string{"path=/a", "path_b64=L2E=", "path_b64=_-8", "path_b64=%zz", "path_b64=a+b/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		q := api.QueryOf(&http.Request{URL: &url.URL{RawQuery: raw}})
		p := api.PathOf(q)
		if err := api.Check(q); err != nil && sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("%q: %q, %v", raw, p, err)
		}
	})
}
