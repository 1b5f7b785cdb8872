package credentials

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/test/rig"
)

// house is a server that reaches the outside, with one sandbox whose policy adds
// the token to what goes to api.
type house struct {
	*rig.Server
	t       *testing.T
	outside *outside
	id      string
}

func newHouse(t *testing.T, flags ...string) *house {
	t.Helper()
	o := newOutside(t)
	o.flags = append(o.flags, flags...)
	h := &house{Server: rig.Start(t, o.flags...), t: t, outside: o}
	if _, err := h.SetSecret(t.Context(), "api", sandbox.SecretValue(token)); err != nil {
		t.Fatal(err)
	}
	s, err := h.Create(t.Context(), sandbox.CreateRequest{Policy: policy(nil)})
	if err != nil {
		t.Fatal(err)
	}
	h.id = string(s.ID)
	return h
}

func policy(change func(*sandbox.Inject)) *sandbox.Policy {
	bearer := sandbox.Inject{Host: "api." + zone, Secret: "api", Header: map[string]string{"Authorization": "Bearer ${secret}"}, Mask: true}
	if change != nil {
		change(&bearer)
	}
	return &sandbox.Policy{Profile: sandbox.ProfileOpen, Inject: []sandbox.Inject{bearer,
		{Host: "code." + zone, Secret: "api", Basic: &sandbox.InjectBasic{User: "x-access-token", Password: "${secret}"}}}}
}

// run runs a shell command in a sandbox and returns what it printed.
func (h *house) run(id, command string) string {
	h.t.Helper()
	out, err := h.try(id, command)
	if err != nil {
		h.t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return out
}

func (h *house) try(id, command string) (string, error) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), 2*time.Minute)
	defer cancel()
	events, err := h.Exec(ctx, id, sandbox.Command{Shell: command})
	if err != nil {
		return "", err
	}
	defer events.Close()
	var out strings.Builder
	for {
		e, err := events.Recv()
		if errors.Is(err, io.EOF) {
			return out.String(), nil
		}
		if err != nil {
			return out.String(), err
		}
		out.Write(e.Data)
		if e.Exit != nil && e.Exit.Code != 0 {
			return out.String(), fmt.Errorf("it exited with %d", e.Exit.Code)
		}
	}
}

const whoami = "https://api." + zone + "/whoami"

// known checks that a request from a sandbox is known outside.
func (h *house) known(id, when string) {
	h.t.Helper()
	if out, err := h.try(id, "curl -sS "+whoami); err != nil || out != "api."+zone+" known" {
		h.t.Errorf("%s: %q, %v", when, out, err)
	}
}

func TestProgramsUseWhatTheSandboxDoesNotHold(t *testing.T) {
	h := newHouse(t)
	for name, c := range map[string]struct{ command, want string }{
		"curl":             {"curl -sS " + whoami, "api." + zone + " known"},
		"http/1.1":         {"curl -sS --http1.1 " + whoami, "api." + zone + " known"},
		"wget":             {"wget -qO- " + whoami, "api." + zone + " known"},
		"urllib":           {"python3 -c \"import urllib.request as u; print(u.urlopen('" + whoami + "').read().decode(), end='')\"", "api." + zone + " known"},
		"requests":         {"python3 -c \"from pip._vendor import requests as r; print(r.get('" + whoami + "').text, end='')\"", "api." + zone + " known"},
		"fetch":            {"node -e \"fetch('" + whoami + "').then(r=>r.text()).then(t=>process.stdout.write(t))\"", "api." + zone + " known"},
		"openssl":          {"env -u SSL_CERT_FILE openssl s_client -connect api." + zone + ":443 -servername api." + zone + " -verify_return_error </dev/null 2>&1 | grep -m1 -c 'Verify return code: 0'", "1\n"},
		"a masked answer":  {"curl -sS https://api." + zone + "/repeat", `you sent "Bearer ` + strings.Repeat("*", len(token)) + `"`},
		"the client's own": {"curl -sS -H 'Authorization: Bearer mine' " + whoami, "api." + zone + " known"},
		"events":           {"curl -sN --max-time 2 https://api." + zone + "/events || true", "data: one\n\n"},
		"a large body":     {"head -c 20000000 /dev/zero | curl -sS -T - https://api." + zone + "/upload", "20000000 <nil>"},
		"git":              {"git clone -q https://code." + zone + "/git/repo.git /tmp/repo && cd /tmp/repo && wc -l <README && echo more >more && git add . && git -c user.name=a -c user.email=a@b commit -qm more && git push -q && git ls-remote origin | wc -l", "10000\n2\n"},
		"pip":              {"python3 -m venv /tmp/venv && /tmp/venv/bin/pip install -q --disable-pip-version-check --index-url https://api." + zone + "/simple/ mine && /tmp/venv/bin/python -c 'import mine; print(mine.said)'", "installed\n"},
		"npm":              {"mkdir -p /tmp/npm && cd /tmp/npm && npm install --silent --no-fund --no-audit --registry https://api." + zone + "/npm/ mine >/dev/null && node -p \"require('mine')\"", "installed\n"},
		"no rule":          {"curl -sSk https://other." + zone + "/whoami", "other." + zone + " stranger"},
		"a redirect":       {"curl -sSkL https://api." + zone + "/leave", "other." + zone + " stranger"},
		"another's name":   {"curl -s -o /dev/null -w '%{http_code}' -H 'Host: other." + zone + "' " + whoami, "421"},
	} {
		t.Run(name, func(t *testing.T) {
			if out, err := h.try(h.id, c.command); err != nil || out != c.want {
				t.Errorf("%s\nprinted %q, %v, want %q", c.command, out, err, c.want)
			}
		})
	}
	h.holdsNothing(h.id)
}

// holdsNothing searches a sandbox for the token as root: environments, memory and
// files.
func (h *house) holdsNothing(id string) {
	h.t.Helper()
	// The pattern is put together inside, or the search would find itself.
	search := fmt.Sprintf(`sudo -n sh -c 'p=%s; p=${p}%s; grep -l "$p" /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null; grep -rlI --exclude-dir=proc --exclude-dir=sys "$p" /etc /home /root /tmp /run /workspace /usr/local 2>/dev/null; echo searched'`, token[:9], token[9:])
	if out := h.run(id, search); out != "searched\n" {
		h.t.Errorf("the sandbox holds the secret: %s", out)
	}
}

// hostHoldsNothing searches what the server keeps: records, logs, and the memory of
// what is paused.
func (h *house) hostHoldsNothing() {
	h.t.Helper()
	searched := 0
	err := filepath.WalkDir(filepath.Dir(h.Data), func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || strings.HasSuffix(name, ".erofs") {
			return err
		}
		searched++
		out, err := exec.Command("grep", "-lF", token, name).Output()
		if len(out) > 0 {
			h.t.Errorf("%s holds the secret", name)
		}
		if code := new(exec.ExitError); errors.As(err, &code) && code.ExitCode() == 1 {
			return nil // grep found nothing
		}
		return err
	})
	if err != nil || searched < 5 {
		h.t.Errorf("%d files were searched, %v", searched, err)
	}
}

// TestNobodyElseIsSentTheToken has the sandbox lead its requests elsewhere. What
// the gateway dials is what the name stands for, whatever the sandbox says.
func TestNobodyElseIsSentTheToken(t *testing.T) {
	h := newHouse(t)
	trapHost, _, _ := strings.Cut(trap, ":")
	siteHost, _, _ := strings.Cut(site, ":")
	for name, c := range map[string]struct{ command, want string }{
		"another address":       {"curl -sk --max-time 20 --resolve api." + zone + ":443:" + trapHost + " " + whoami, "api." + zone + " known"},
		"an address, no name":   {"curl -sk --max-time 20 -H 'Host: api." + zone + "' https://" + siteHost + "/whoami", "api." + zone + " stranger"},
		"another's handshake":   {"curl -sk --max-time 20 -H 'Host: api." + zone + "' https://other." + zone + "/whoami", "api." + zone + " stranger"},
		"the trap by address":   {"curl -sk --max-time 20 -H 'Host: api." + zone + "' https://" + trapHost + "/ || echo refused", "refused\n"},
		"plain text":            {"curl -s --max-time 20 http://api." + zone + ":443/whoami | grep -c known || true", "0\n"},
		"plain text, to a trap": {"curl -s --max-time 20 --resolve api." + zone + ":443:" + trapHost + " http://api." + zone + ":443/whoami | grep -c known || true", "0\n"},
	} {
		if out, err := h.try(h.id, c.command); err != nil || out != c.want {
			t.Errorf("%s: %q, %v, want %q", name, out, err, c.want)
		}
	}
	h.outside.mu.Lock()
	defer h.outside.mu.Unlock()
	if strings.Contains(string(h.outside.trapped), token) {
		t.Error("the trap was sent the token")
	}
	if len(h.outside.trapped) == 0 {
		t.Error("nothing came to the trap: it was not one")
	}
}

// TestTheOperatorsHandlerDecides has a program on the host decide what goes to a
// host, and keeps deciding when it has gone wrong: by refusing.
func TestTheOperatorsHandlerDecides(t *testing.T) {
	program := filepath.Join(t.TempDir(), "decide")
	script := "#!/bin/sh\ncase $REQUEST_METHOD in\n" +
		"GET) printf 'Berth-Decision: forward\\nBerth-Set: Authorization: Bearer " + token + "\\n\\n' ;;\n" +
		"PUT) printf 'Berth-Decision: answer\\nStatus: 201 Made\\n\\n%s' \"$HTTP_BERTH_SANDBOX\" ;;\n" +
		"*) printf 'Berth-Decision: refuse\\n\\nonly reading is allowed' ;;\nesac\n"
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	h := newHouse(t, "--handler", "gate="+program)
	rules := &sandbox.Policy{Profile: sandbox.ProfileOpen, Inject: []sandbox.Inject{{Host: "other." + zone, Handler: &sandbox.Handler{Name: "gate"}}}}
	if _, err := h.SetPolicy(t.Context(), h.id, *rules); err != nil {
		t.Fatal(err)
	}
	ask := func(more, want string) {
		t.Helper()
		if out, err := h.try(h.id, "curl -sS "+more+" https://other."+zone+"/whoami"); err != nil || out != want {
			t.Errorf("%s: %q, %v, want %q", more, out, err, want)
		}
	}
	ask("", "other."+zone+" known")
	ask("-X PUT -w ' %{http_code}'", h.id+" 201")
	ask("-X POST -o /dev/null -w '%{http_code}'", "403")
	if err := os.Remove(program); err != nil {
		t.Fatal(err)
	}
	ask("-o /dev/null -w '%{http_code}'", "502")
	rules.Inject[0].Handler.Name = "none"
	if _, err := h.SetPolicy(t.Context(), h.id, *rules); sandbox.KindOf(err) != sandbox.Invalid {
		t.Errorf("a handler that nobody has set up: %v", err)
	}
}

// values sets the token in a sandbox's own rule; nil keeps it.
func values(text *sandbox.HeaderText) *sandbox.Policy {
	return &sandbox.Policy{Profile: sandbox.ProfileOpen, Inject: []sandbox.Inject{
		{Host: "*." + zone, Except: []string{"other." + zone}, Values: map[string]*sandbox.HeaderText{"Authorization": text}, Mask: true}}}
}

// TestValuesSurvive has a header that is one sandbox's own over all that becomes of it.
func TestValuesSurvive(t *testing.T) {
	h := newHouse(t)
	text := sandbox.HeaderText("Bearer " + token)
	s, err := h.Create(t.Context(), sandbox.CreateRequest{Policy: values(&text)})
	if err != nil {
		t.Fatal(err)
	}
	id := string(s.ID)
	h.known(id, "at first")
	if out := h.run(id, "curl -sS https://api."+zone+"/repeat"); out != `you sent "`+strings.Repeat("*", len(text))+`"` {
		t.Errorf("a masked answer: %q", out)
	}
	if out := h.run(id, "curl -sSk https://other."+zone+"/whoami"); out != "other."+zone+" stranger" {
		t.Errorf("a host that is left out: %q", out)
	}
	shot, err := h.Snapshot(t.Context(), id, sandbox.SnapshotRequest{})
	if err != nil {
		t.Fatal(err)
	}
	f, err := h.Fork(t.Context(), id, sandbox.ForkRequest{Count: 1})
	if err != nil || f.Children[0].Sandbox == nil {
		t.Fatalf("%+v, %v", f, err)
	}
	child := string(f.Children[0].Sandbox.ID)
	if _, err := h.Pause(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	h.hostHoldsNothing()
	h.Restart(t, syscall.SIGKILL, h.outside.flags...)
	h.known(id, "after a pause, and the server was killed")
	h.known(child, "the fork")
	h.holdsNothing(child)
	if _, err := h.SetPolicy(t.Context(), id, *values(nil)); err != nil {
		t.Fatal(err)
	}
	h.known(id, "set again as it was read")
	if _, err := h.Rollback(t.Context(), id, sandbox.RollbackRequest{Snapshot: string(shot.ID)}); err != nil {
		t.Fatal(err)
	}
	h.known(id, "taken back to a snapshot")
	if _, err := h.SetPolicy(t.Context(), id, sandbox.DefaultPolicy()); err != nil {
		t.Fatal(err)
	}
	if out, err := h.try(id, "curl -sSk "+whoami); err != nil || !strings.HasSuffix(out, "stranger") {
		t.Errorf("without the rule: %q, %v", out, err)
	}
	h.known(child, "the fork, when its parent has no rule any more")
	made, err := h.Create(t.Context(), sandbox.CreateRequest{Snapshot: string(shot.ID)})
	if err != nil {
		t.Fatal(err)
	}
	if out, err := h.try(string(made.ID), "curl -sSk "+whoami); err != nil || !strings.HasSuffix(out, "stranger") {
		t.Errorf("made from the snapshot: %q, %v", out, err)
	}
	if _, err := h.SetPolicy(t.Context(), string(made.ID), *values(nil)); sandbox.KindOf(err) != sandbox.Invalid {
		t.Errorf("what was made from the snapshot had a value to keep: %v", err)
	}
}

func TestCredentialsSurvive(t *testing.T) {
	h := newHouse(t)
	h.known(h.id, "at first")
	if _, err := h.Pause(t.Context(), h.id); err != nil {
		t.Fatal(err)
	}
	h.hostHoldsNothing()
	h.known(h.id, "after a pause")
	h.Restart(t, syscall.SIGKILL, h.outside.flags...)
	h.known(h.id, "after the server was killed")
	if _, err := h.SetSecret(t.Context(), "api", sandbox.SecretValue("another value")); err != nil {
		t.Fatal(err)
	}
	if out := h.run(h.id, "curl -sS "+whoami); !strings.HasSuffix(out, "stranger") {
		t.Errorf("the former value is still used: %q", out)
	}
	if _, err := h.SetSecret(t.Context(), "api", sandbox.SecretValue(token)); err != nil {
		t.Fatal(err)
	}
	h.known(h.id, "with the value from before")
}

// startAsking starts a program that has read whom to trust, and asks again when it
// is told to.
func (h *house) startAsking(id string) {
	h.t.Helper()
	h.run(id, `cat >/tmp/ask.py <<'E'
import os, ssl, time, urllib.request
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.load_verify_locations('/etc/ssl/certs/ca-certificates.crt') # now, and never again
open('/tmp/ready', 'w').close()
while True:
    if os.path.exists('/tmp/go'):
        try: said = urllib.request.urlopen('`+whoami+`', context=context).read().decode()
        except Exception as e: said = str(e)
        os.remove('/tmp/go')
        open('/tmp/said.new', 'w').write(said)
        os.rename('/tmp/said.new', '/tmp/said')
    time.sleep(0.05)
E
setsid python3 /tmp/ask.py >/dev/null 2>&1 &
for i in $(seq 200); do test -e /tmp/ready && break; sleep 0.1; done; test -e /tmp/ready`)
}

// asks has that program ask.
func (h *house) asks(id, what string) {
	h.t.Helper()
	out, err := h.try(id, "rm -f /tmp/said; touch /tmp/go; for i in $(seq 200); do test -e /tmp/said && break; sleep 0.1; done; cat /tmp/said")
	if err != nil || out != "api."+zone+" known" {
		h.t.Errorf("%s: %q, %v", what, out, err)
	}
}

func TestAForkHasItsOwnGrant(t *testing.T) {
	h := newHouse(t)
	h.startAsking(h.id)
	f, err := h.Fork(t.Context(), h.id, sandbox.ForkRequest{Count: 1})
	if err != nil || len(f.Children) != 1 || f.Children[0].Sandbox == nil {
		t.Fatalf("%+v, %v", f, err)
	}
	child := string(f.Children[0].Sandbox.ID)
	h.known(child, "the fork")
	h.asks(child, "a program from before the fork")
	if a, b := h.run(h.id, "md5sum </usr/local/share/ca-certificates/berth-sandbox.crt"), h.run(child, "md5sum </usr/local/share/ca-certificates/berth-sandbox.crt"); a == b {
		t.Error("the fork has its parent's authority")
	}
	if err := h.RevokeGrant(t.Context(), h.id, "api"); err != nil {
		t.Fatal(err)
	}
	if out := h.run(h.id, "curl -s -o /dev/null -w '%{http_code}' "+whoami); out != "403" {
		t.Errorf("after the revocation: %q", out)
	}
	h.known(child, "the fork, its parent's grant revoked")
	grants, err := h.Grants(t.Context(), child)
	if err != nil || len(grants) != 1 || grants[0].Revoked {
		t.Errorf("%+v, %v", grants, err)
	}
}

// TestASnapshotsProgramsGoOn makes a sandbox from the memory of another. It has no
// grant before its policy says so, and programs that ran then trust it.
func TestASnapshotsProgramsGoOn(t *testing.T) {
	h := newHouse(t)
	h.startAsking(h.id)
	shot, err := h.Snapshot(t.Context(), h.id, sandbox.SnapshotRequest{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := h.Create(t.Context(), sandbox.CreateRequest{Snapshot: string(shot.ID)})
	if err != nil {
		t.Fatal(err)
	}
	if grants, err := h.Grants(t.Context(), string(s.ID)); err != nil || len(grants) > 0 {
		t.Errorf("%+v, %v", grants, err)
	}
	if _, err := h.SetPolicy(t.Context(), string(s.ID), *policy(nil)); err != nil {
		t.Fatal(err)
	}
	h.asks(string(s.ID), "a program from before the snapshot")
	h.known(string(s.ID), "made from the snapshot")
	h.known(h.id, "the other")
}

func TestAPolicyGetsItsFirstRuleWhileItRuns(t *testing.T) {
	h := newHouse(t)
	s, err := h.Create(t.Context(), sandbox.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	id := string(s.ID)
	if out, err := h.try(id, "curl -sS "+whoami); err == nil {
		t.Errorf("without a rule: %q", out) // its certificate is nobody's that is trusted inside
	}
	if _, err := h.SetPolicy(t.Context(), id, *policy(nil)); err != nil {
		t.Fatal(err)
	}
	h.known(id, "with its first rule")
	missing := *policy(func(i *sandbox.Inject) { i.Secret = "none" })
	if _, err := h.SetPolicy(t.Context(), id, missing); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("a secret that is not there: %v", err)
	}
	if _, err := h.Create(t.Context(), sandbox.CreateRequest{Policy: &missing}); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("created with a secret that is not there: %v", err)
	}
	h.known(id, "after a policy that was refused")
	page, err := h.Audit(t.Context(), sandbox.AuditQuery{Sandbox: id, Kinds: []sandbox.AuditKind{sandbox.AuditRequest}})
	if err != nil || len(page.Entries) < 2 {
		t.Fatalf("%+v, %v", page, err)
	}
	if e := page.Entries[0]; e.Credential != "api" || e.Host != "api."+zone || e.Status != 200 || e.Verdict != sandbox.VerdictAllowed {
		t.Errorf("%+v", e)
	}
}
