package cloudflare

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/berth-dev/berth/dialect/cloudflare/capnweb"
	"github.com/berth-dev/berth/sandbox"
)

// code is what clients know an error by.
type code string

// The codes that this server gives.
const (
	fileNotFound      code = "FILE_NOT_FOUND"
	fileExists        code = "FILE_EXISTS"
	fileTooLarge      code = "FILE_TOO_LARGE"
	isDirectory       code = "IS_DIRECTORY"
	notDirectory      code = "NOT_DIRECTORY"
	permissionDenied  code = "PERMISSION_DENIED"
	readOnly          code = "READ_ONLY"
	noSpace           code = "NO_SPACE"
	tooManyFiles      code = "TOO_MANY_FILES"
	tooManyLinks      code = "TOO_MANY_LINKS"
	nameTooLong       code = "NAME_TOO_LONG"
	resourceBusy      code = "RESOURCE_BUSY"
	filesystemError   code = "FILESYSTEM_ERROR"
	invalidCommand    code = "INVALID_COMMAND"
	commandError      code = "COMMAND_EXECUTION_ERROR"
	streamStartError  code = "STREAM_START_ERROR"
	processNotFound   code = "PROCESS_NOT_FOUND"
	processError      code = "PROCESS_ERROR"
	sessionExists     code = "SESSION_ALREADY_EXISTS"
	sessionTerminated code = "SESSION_TERMINATED"
	invalidPort       code = "INVALID_PORT"
	invalidGitURL     code = "INVALID_GIT_URL"
	gitAuthFailed     code = "GIT_AUTH_FAILED"
	gitNoRepository   code = "GIT_REPOSITORY_NOT_FOUND"
	gitNoBranch       code = "GIT_BRANCH_NOT_FOUND"
	gitNetworkError   code = "GIT_NETWORK_ERROR"
	gitCloneFailed    code = "GIT_CLONE_FAILED"
	gitError          code = "GIT_OPERATION_FAILED"
	contextNotFound   code = "CONTEXT_NOT_FOUND"
	codeError         code = "CODE_EXECUTION_ERROR"
	notReady          code = "INTERPRETER_NOT_READY"
	noPython          code = "PYTHON_NOT_AVAILABLE"
	noJavaScript      code = "JAVASCRIPT_NOT_AVAILABLE"
	watchStartError   code = "WATCH_START_ERROR"
	backupFailed      code = "BACKUP_CREATE_FAILED"
	restoreFailed     code = "BACKUP_RESTORE_FAILED"
	backupNotFound    code = "BACKUP_NOT_FOUND"
	invalidBackup     code = "INVALID_BACKUP_CONFIG"
	validationFailed  code = "VALIDATION_FAILED"
	unavailable       code = "CONTAINER_UNAVAILABLE"
	unknownError      code = "UNKNOWN_ERROR"
	internalError     code = "INTERNAL_ERROR"
)

// statuses has the status of every code that is not 500.
var statuses = map[code]int{
	isDirectory: 400, notDirectory: 400, invalidCommand: 400, invalidPort: 400, invalidGitURL: 400, nameTooLong: 400,
	validationFailed: 400, invalidBackup: 400,
	gitAuthFailed:    401,
	permissionDenied: 403, readOnly: 403,
	fileNotFound: 404, processNotFound: 404, gitNoRepository: 404, gitNoBranch: 404, contextNotFound: 404, backupNotFound: 404,
	fileExists: 409, resourceBusy: 409, sessionExists: 409,
	sessionTerminated: 410,
	fileTooLarge:      413,
	noPython:          501, noJavaScript: 501,
	gitNetworkError: 502,
	notReady:        503, unavailable: 503,
}

func (c code) status() int {
	if s, ok := statuses[c]; ok {
		return s
	}
	return http.StatusInternalServerError
}

// fault is an error in these clients' words.
type fault struct {
	code    code
	text    string
	context map[string]any
	op      string // "file.read", or ""
	status  int    // 0: the code's own
	err     error  // nil, or the cause
}

func (f *fault) Error() string { return f.text }
func (f *fault) Unwrap() error { return f.err }

var (
	errScope   = errors.New("the key lacks the scope exec")
	errClosing = &sandbox.Error{Op: "serve", Kind: sandbox.Unavailable, Err: errors.New("the server is shutting down"), Hint: "try again in a moment"}
)

func invalid(text string) error { return &fault{code: validationFailed, text: text} }

// errorBody is an error's form on the wire.
type errorBody struct {
	Code       code           `json:"code"`
	Message    string         `json:"message"`
	Context    map[string]any `json:"context"`
	Status     int            `json:"httpStatus"`
	Timestamp  string         `json:"timestamp"`
	Operation  string         `json:"operation,omitempty"`
	Suggestion string         `json:"suggestion,omitempty"`
}

// bodyOf puts any error in these clients' words.
func (s *Server) bodyOf(err error) errorBody {
	b := errorBody{Timestamp: now(), Context: map[string]any{}}
	var f *fault
	switch {
	case errors.As(err, &f):
		b.Code, b.Message, b.Status, b.Operation = f.code, f.text, f.status, f.op
		if f.context != nil {
			b.Context = f.context
		}
	default:
		b.Code, b.Status, b.Message = s.plain(err)
		if b.Code == unavailable {
			b.Context["reason"], b.Context["retryable"] = "container_unreachable", true
		}
	}
	b.Suggestion = sandbox.HintOf(err)
	if b.Status == 0 {
		b.Status = b.Code.status()
	}
	b.Message = strings.ToValidUTF8(b.Message, "\uFFFD")
	return b
}

// plain is an error of the engine's that no resource has words for, or of a client's that
// has gone.
func (s *Server) plain(err error) (c code, status int, text string) {
	if errors.Is(err, capnweb.ErrEnded) {
		return unavailable, 0, err.Error()
	}
	switch kind := sandbox.KindOf(err); kind {
	case sandbox.Invalid:
		return validationFailed, 0, err.Error()
	case sandbox.Unauthorized:
		return permissionDenied, http.StatusUnauthorized, err.Error()
	case sandbox.Forbidden:
		return permissionDenied, 0, err.Error()
	case sandbox.NotFound:
		return unknownError, http.StatusNotFound, err.Error()
	case sandbox.Conflict:
		return resourceBusy, 0, err.Error()
	case sandbox.Exhausted:
		return resourceBusy, http.StatusTooManyRequests, err.Error()
	case sandbox.Unsupported:
		return unknownError, http.StatusNotImplemented, err.Error()
	case sandbox.Unavailable:
		return unavailable, 0, err.Error()
	case sandbox.Timeout:
		return unknownError, http.StatusGatewayTimeout, err.Error()
	}
	s.log.Error("internal error", "error", err)
	return internalError, 0, "internal error"
}

// render answers a request with an error. It is the only place that does.
func (s *Server) render(w http.ResponseWriter, err error) {
	b := s.bodyOf(err)
	if b.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	writeJSON(w, b.Status, b)
}

// writeJSON answers with v. A client that has gone cannot be told.
func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // of this package's own forms
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(b)
}

// now is this moment as these clients write it.
func now() string { return stamp(time.Now()) }

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// fileErrors tells by the system's words which error of a file it was.
var fileErrors = []struct {
	words string
	code  code
}{
	{"no such file or directory", fileNotFound},
	{"file exists", fileExists},
	{"is a directory", isDirectory},
	{"is a folder", isDirectory},
	{"not a directory", notDirectory},
	{"permission denied", permissionDenied},
	{"operation not permitted", permissionDenied},
	{"read-only file system", readOnly},
	{"no space left on device", noSpace},
	{"disk quota exceeded", noSpace},
	{"too many open files", tooManyFiles},
	{"too many links", tooManyLinks},
	{"too many levels of symbolic links", tooManyLinks},
	{"file name too long", nameTooLong},
	{"directory not empty", fileExists},
	{"device or resource busy", resourceBusy},
	{"text file busy", resourceBusy},
}

// fileFault puts an error of a file in these clients' words. op is theirs, such as
// "file.read".
func fileFault(op, path string, err error) error {
	var already *fault
	if err == nil || errors.As(err, &already) {
		return err
	}
	f := &fault{op: op, err: err, text: err.Error(), context: map[string]any{"path": path, "operation": op}}
	for _, one := range fileErrors {
		if strings.HasSuffix(f.text, one.words) {
			f.code = one.code
			break
		}
	}
	switch kind := sandbox.KindOf(err); {
	case f.code == fileNotFound:
		f.text = "File not found: " + path
	case f.code != "":
	case kind == sandbox.Internal, kind == sandbox.Unavailable, kind == sandbox.Timeout, kind == sandbox.NotFound:
		return err
	case kind == sandbox.Forbidden:
		f.code = permissionDenied
	case kind == sandbox.Invalid:
		f.code = validationFailed
	default:
		f.code = filesystemError
	}
	return f
}
