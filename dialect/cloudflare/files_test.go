package cloudflare_test

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func TestFiles(t *testing.T) {
	b := newBox(t)
	b.exec(t, "s", "mkdir -p d && cd d")
	b.must(t, "POST", "/api/write", object{"path": "a.txt", "content": "ä", "sessionId": "s"})
	if v := b.must(t, "POST", "/api/read", object{"path": "a.txt", "sessionId": "s"}); v["content"] != "ä" || v["encoding"] != "utf-8" || v["mimeType"] != "text/plain;charset=utf-8" || v["size"] != 2.0 {
		t.Errorf("%v", v)
	}
	some := base64.StdEncoding.EncodeToString([]byte{0, 1, 255})
	b.must(t, "POST", "/api/write", object{"path": "b", "content": some, "encoding": "base64", "sessionId": "s", "permissions": "755"})
	if v := b.must(t, "POST", "/api/read", object{"path": "b", "sessionId": "s"}); v["content"] != some || v["isBinary"] != true || v["mimeType"] != "application/octet-stream" {
		t.Errorf("%v", v)
	}
	b.must(t, "POST", "/api/mkdir", object{"path": "x/y", "recursive": true, "sessionId": "s"})
	b.must(t, "POST", "/api/rename", object{"oldPath": "a.txt", "newPath": "x/a", "sessionId": "s"})
	if v := b.must(t, "POST", "/api/move", object{"sourcePath": "x/a", "destinationPath": "x/y/a", "sessionId": "s"}); v["newPath"] != "x/y/a" {
		t.Errorf("%v", v)
	}
	list := b.must(t, "POST", "/api/list-files", object{"path": ".", "sessionId": "s", "options": object{"recursive": true}})
	var names []string
	for _, f := range list["files"].([]any) {
		names = append(names, f.(object)["relativePath"].(string)+" "+f.(object)["mode"].(string))
	}
	slices.Sort(names)
	if got := strings.Join(names, ", "); got != "b rwxr-xr-x, x rwxr-xr-x, x/y rwxr-xr-x, x/y/a rw-r--r--" {
		t.Error(got)
	}
	for path, want := range map[string]bool{"x/y/a": true, "none": false, "b/none": false} {
		if v := b.must(t, "POST", "/api/exists", object{"path": path, "sessionId": "s"}); v["exists"] != want {
			t.Errorf("%v", v)
		}
	}
	var text string
	b.events(t, "POST", "/api/read/stream", object{"path": "x/y/a", "sessionId": "s"}, func(e object) bool {
		if e["type"] == "chunk" {
			text += e["data"].(string)
		}
		return false
	})
	if text != "ä" {
		t.Error(text)
	}
	b.must(t, "POST", "/api/delete", object{"path": "x/y/a", "sessionId": "s"})
}

func TestHiddenFiles(t *testing.T) {
	b := newBox(t)
	b.exec(t, "s", "mkdir -p .h/in; echo 1 > .h/in/.no; echo 1 > .h/in/yes")
	for _, one := range []struct {
		options object
		want    string
	}{
		{nil, ""}, // a name with a dot before it is hidden
		{object{"recursive": true}, ".h/in .h/in/yes"}, // what lies beneath it is not
		{object{"recursive": true, "includeHidden": true}, ".h .h/in .h/in/.no .h/in/yes"},
	} {
		list := b.must(t, "POST", "/api/list-files", object{"path": ".", "sessionId": "s", "options": one.options})
		var names []string
		for _, f := range list["files"].([]any) {
			names = append(names, f.(object)["relativePath"].(string))
		}
		slices.Sort(names)
		if got := strings.Join(names, " "); got != one.want {
			t.Errorf("%v: %s, want %s", one.options, got, one.want)
		}
	}
	if v := b.fails(t, "/api/delete", object{"path": ".h", "sessionId": "s"}, 400, "IS_DIRECTORY"); !strings.Contains(v["message"].(string), "Cannot delete directory with deleteFile()") {
		t.Error(v)
	}
}

func TestFileErrors(t *testing.T) {
	b := newBox(t)
	b.exec(t, "s", "mkdir -p d/e; echo 1 > f; truncate -s 40M huge")
	for _, one := range []struct {
		path   string
		body   object
		status int
		code   string
	}{
		{"/api/read", object{"path": "none"}, 404, "FILE_NOT_FOUND"},
		{"/api/read", object{"path": "d"}, 400, "IS_DIRECTORY"},
		{"/api/read", object{"path": "f/x"}, 400, "NOT_DIRECTORY"},
		{"/api/read", object{"path": "huge"}, 413, "FILE_TOO_LARGE"},
		{"/api/read", object{"path": ""}, 400, "VALIDATION_FAILED"},
		{"/api/read", object{"path": "a\x00b"}, 400, "VALIDATION_FAILED"},
		{"/api/read", object{"path": strings.Repeat("x", 5000)}, 400, "VALIDATION_FAILED"},
		{"/api/read", object{"path": strings.Repeat("x", 300)}, 400, "NAME_TOO_LONG"},
		{"/api/read", object{"path": "f", "encoding": "latin1"}, 400, "VALIDATION_FAILED"},
		{"/api/read/stream", object{"path": "none"}, 404, "FILE_NOT_FOUND"},
		{"/api/write", object{"path": "f", "content": "!", "encoding": "base64"}, 400, "VALIDATION_FAILED"},
		{"/api/write", object{"path": "d", "content": "x"}, 400, "IS_DIRECTORY"},
		{"/api/write", object{"path": "f/below", "content": "x"}, 400, "NOT_DIRECTORY"},
		{"/api/mkdir", object{"path": "d"}, 409, "FILE_EXISTS"},
		{"/api/mkdir", object{"path": "n/m"}, 404, "FILE_NOT_FOUND"},
		{"/api/delete", object{"path": "d"}, 400, "IS_DIRECTORY"},
		{"/api/delete", object{"path": "none"}, 404, "FILE_NOT_FOUND"},
		{"/api/rename", object{"oldPath": "none", "newPath": "x"}, 404, "FILE_NOT_FOUND"},
		{"/api/rename", object{"path": "f", "newName": "x"}, 404, "FILE_NOT_FOUND"},
		{"/api/move", object{}, 404, "FILE_NOT_FOUND"},
		{"/api/list-files", object{"path": "none"}, 404, "FILE_NOT_FOUND"},
		{"/api/list-files", object{"path": "f"}, 400, "NOT_DIRECTORY"},
		{"/api/watch", object{"path": "none"}, 404, "FILE_NOT_FOUND"},
		{"/api/watch", object{"path": "d", "include": []string{"a"}, "exclude": []string{"b"}}, 400, "VALIDATION_FAILED"},
		{"/api/port-watch", object{"port": 0}, 400, "INVALID_PORT"},
		{"/api/port-watch", object{"port": 80, "mode": "udp"}, 400, "VALIDATION_FAILED"},
		{"/api/git/checkout", object{"repoUrl": "--upload-pack=x"}, 400, "INVALID_GIT_URL"},
		{"/api/git/checkout", object{"repoUrl": "https://x/y", "branch": "--x"}, 400, "VALIDATION_FAILED"},
		{"/api/git/checkout", object{"repoUrl": "https://x/y", "depth": 1.5}, 400, "VALIDATION_FAILED"},
		{"/api/backup/create", object{"dir": "/etc", "archivePath": "/x"}, 400, "INVALID_BACKUP_CONFIG"},
		{"/api/backup/upload-parts", object{"archivePath": "/x", "parts": []any{}}, 400, "VALIDATION_FAILED"},
		{"/api/execute/code", object{"code": ""}, 400, "VALIDATION_FAILED"},
		{"/api/execute/code", object{"code": "1", "context_id": "../x"}, 404, "CONTEXT_NOT_FOUND"},
	} {
		one.body["sessionId"] = "s"
		v := b.fails(t, one.path, one.body, one.status, one.code)
		if _, ok := v["context"].(object); !ok {
			t.Errorf("%v", v)
		}
	}
}

func TestWatch(t *testing.T) {
	b := newBox(t)
	b.exec(t, "s", "mkdir -p w/node_modules; echo 1 > w/f; cd w")
	ready, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-ready:
			b.exec(t, "s", "echo > node_modules/no; echo > one; mv one two; rm two; touch last")
		case <-t.Context().Done():
		}
	}()
	var all []string
	b.events(t, "POST", "/api/watch", object{"path": ".", "sessionId": "s"}, func(e object) bool {
		if e["type"] == "watching" {
			close(ready)
			return false
		}
		p := e["path"].(string)
		name := p[strings.LastIndex(p, "/")+1:]
		all = append(all, e["eventType"].(string)+" "+name)
		return name == "last"
	})
	<-done
	if got := strings.Join(all, ", "); strings.Contains(got, "no,") || !strings.Contains(got, "create last") {
		t.Error(got)
	}
}

func TestCheckChanges(t *testing.T) {
	b := newBox(t)
	b.exec(t, "s", "mkdir -p w/node_modules w/sub; echo 1 > w/f; echo 1 > w/g.ts; cd w")
	check := func(since any, extra object) (string, string) {
		t.Helper()
		q := object{"path": ".", "sessionId": "s"}
		if since != nil {
			q["since"] = since
		}
		for k, v := range extra {
			q[k] = v
		}
		v := b.must(t, "POST", "/api/watch/check", q)
		return v["status"].(string), v["version"].(string)
	}
	_, first := check(nil, nil)
	if status, _ := check(first, nil); status != "unchanged" {
		t.Error(status)
	}
	b.exec(t, "s", "echo > node_modules/x")
	if status, _ := check(first, nil); status != "unchanged" {
		t.Error("what is left out counts")
	}
	last := first
	for _, change := range []string{"echo 2 > f", "chmod 700 f", "mv f h", "touch sub/new", "rm sub/new", "ln -s h link"} {
		b.exec(t, "s", change)
		status, version := check(last, nil)
		if status != "changed" {
			t.Errorf("%s: %s", change, status)
		}
		last = version
	}
	only := object{"include": []string{"*.ts"}}
	_, ts := check(nil, only)
	b.exec(t, "s", "echo 3 > h")
	if status, _ := check(ts, only); status != "unchanged" {
		t.Error("what is not included counts")
	}
	b.exec(t, "s", "echo 3 > g.ts")
	if status, _ := check(ts, only); status != "changed" {
		t.Error("what is included does not count")
	}
	for _, since := range []string{ts, "x", "v1-0000000000000000-" + strings.Repeat("0", 64)} {
		if status, _ := check(since, nil); status != "resync" {
			t.Errorf("%s: %s", since, status)
		}
	}
}
