package cloudflare

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// cloneTime is how long a clone may take that names no time.
const cloneTime = 10 * time.Minute

var errNoGit = errors.New("git is not there")

// scpLike is an address such as git@host:path.
var scpLike = regexp.MustCompile(`^[A-Za-z0-9._-]+@[A-Za-z0-9.-]+:[^\s]+$`)

// checkout clones a repository.
func (b *box) checkout(ctx context.Context, r checkoutRequest) (any, error) {
	limit, err := r.check()
	if err != nil {
		return nil, err
	}
	dir, err := b.resolve(ctx, r.SessionID, r.TargetDir)
	if err != nil {
		return nil, err
	}
	argv := []string{"git", "clone"}
	if r.Branch != "" {
		argv = append(argv, "--branch", r.Branch)
	}
	if r.Depth > 0 {
		argv = append(argv, "--depth", strconv.Itoa(int(r.Depth)))
	}
	out, err := b.git(ctx, &r, limit, append(argv, "--", r.RepoURL, dir)...)
	if err != nil {
		return nil, err
	}
	if out.exit.Code != 0 {
		return nil, r.classify(out)
	}
	branch := r.Branch
	if branch == "" {
		head, err := b.git(ctx, &r, limit, "git", "-C", dir, "symbolic-ref", "--short", "-q", "HEAD")
		if err != nil {
			return nil, err
		}
		if branch = trimmed(head.stdout); branch == "" {
			branch = "HEAD"
		}
	}
	return checkoutAnswer{Success: true, Message: "Repository cloned successfully", RepoURL: hide(r.RepoURL), Branch: branch, TargetDir: dir,
		Stdout: trimmed(out.stdout), Stderr: hideIn(trimmed(out.stderr), r.RepoURL), Timestamp: now()}, nil
}

// check settles what is to be cloned, and within what time.
func (r *checkoutRequest) check() (time.Duration, error) {
	bad := func(why string) error {
		return &fault{code: invalidGitURL, text: "Invalid Git URL: " + why, op: "git.clone", context: map[string]any{"repository": hide(r.RepoURL)}}
	}
	if r.RepoURL == "" || strings.ContainsAny(r.RepoURL, "\x00\r\n") || strings.HasPrefix(r.RepoURL, "-") {
		return 0, bad("it is empty, or begins with a dash")
	}
	if !scpLike.MatchString(r.RepoURL) {
		u, err := url.Parse(r.RepoURL)
		switch {
		case err != nil:
			return 0, bad("it cannot be read")
		case u.Scheme != "https" && u.Scheme != "http" && u.Scheme != "ssh" && u.Scheme != "git" && u.Scheme != "file":
			return 0, bad("its scheme is none of https, http, ssh, git and file")
		}
	}
	if strings.HasPrefix(r.Branch, "-") || strings.ContainsAny(r.Branch, "\x00\r\n ") {
		return 0, invalid("the branch is no name")
	}
	if r.Depth < 0 || r.Depth > 1e9 || r.Depth != float64(int(r.Depth)) {
		return 0, invalid("depth must be a positive integer")
	}
	if r.TargetDir == "" {
		r.TargetDir = path.Join(defaultDir, repoName(r.RepoURL))
	}
	if r.TimeoutMs == 0 {
		return cloneTime, nil
	}
	return timeout(r.TimeoutMs)
}

// repoName is the name of the folder that a clone goes to.
func repoName(address string) string {
	name := address
	if u, err := url.Parse(address); err == nil && u.Path != "" {
		name = u.Path
	}
	name = strings.TrimSuffix(strings.TrimRight(name, "/"), ".git")
	if i := strings.LastIndexAny(name, "/:"); i >= 0 {
		name = name[i+1:]
	}
	if name == "" || name == "." || name == ".." {
		return "repository"
	}
	return name
}

// git runs git as the session's shell would, and asks nobody for a password.
func (b *box) git(ctx context.Context, r *checkoutRequest, limit time.Duration, argv ...string) (output, error) {
	words := make([]string, len(argv))
	for i, a := range argv {
		words[i] = quote(a)
	}
	events, err := b.start(ctx, task{command: strings.Join(words, " "), session: r.SessionID, timeout: limit,
		env: map[string]string{"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}})
	if err != nil {
		return output{}, err
	}
	out, err := collect(events, maxOutput)
	if err == nil && out.exit.TimedOut {
		err = &fault{code: gitCloneFailed, op: "git.clone", text: fmt.Sprintf("Git clone timed out after %v", limit),
			context: map[string]any{"repository": hide(r.RepoURL), "targetDir": r.TargetDir},
			err:     sandbox.Errorf("clone", sandbox.Timeout, "it took longer than %v", limit)}
	}
	return out, err
}

// gitErrors tells by git's words which error it was; the first that fits counts.
var gitErrors = []struct {
	words string
	code  code
}{
	{"remote branch", gitNoBranch},
	{"authentication failed", gitAuthFailed},
	{"could not read username", gitAuthFailed},
	{"could not read password", gitAuthFailed},
	{"terminal prompts disabled", gitAuthFailed},
	{"permission denied (publickey", gitAuthFailed},
	{"host key verification failed", gitAuthFailed},
	{"repository not found", gitNoRepository},
	{"does not appear to be a git repository", gitNoRepository},
	{"does not exist", gitNoRepository},
	{"' not found", gitNoRepository},
	{"no such file or directory", gitNoRepository},
	{"could not resolve host", gitNetworkError},
	{"connection refused", gitNetworkError},
	{"connection timed out", gitNetworkError},
	{"connection reset", gitNetworkError},
	{"failed to connect", gitNetworkError},
	{"couldn't connect", gitNetworkError},
	{"network is unreachable", gitNetworkError},
	{"unable to access", gitNetworkError},
}

// classify puts what git said in these clients' words.
func (r *checkoutRequest) classify(out output) error {
	said := hideIn(trimmed(out.stderr), r.RepoURL)
	f := &fault{code: gitCloneFailed, op: "git.clone", text: "Failed to clone repository: " + said,
		context: map[string]any{"repository": hide(r.RepoURL), "targetDir": r.TargetDir, "stderr": said, "exitCode": out.exit.Code}}
	if r.Branch != "" {
		f.context["branch"] = r.Branch
	}
	if out.exit.Code == 127 {
		f.err = &sandbox.Error{Kind: sandbox.Unsupported, Err: errNoGit, Hint: "take a template that has git"}
		return f
	}
	lower := strings.ToLower(said)
	for _, one := range gitErrors {
		if strings.Contains(lower, one.words) {
			f.code = one.code
			break
		}
	}
	return f
}

// hide takes the credentials out of an address.
func hide(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.User == nil || u.Host == "" {
		return address
	}
	u.User = url.User("***")
	return u.String()
}

// hideIn takes an address's credentials out of a text.
func hideIn(text, address string) string {
	u, err := url.Parse(address)
	if err != nil || u.User == nil || u.Host == "" {
		return text
	}
	return strings.ReplaceAll(text, u.User.String()+"@", "***@")
}
