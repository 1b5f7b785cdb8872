package cloudflare

import (
	"encoding/json"

	"github.com/berth-dev/berth/sandbox"
)

// The forms of the wire. Times in text are ISO 8601.

// environment is variables; those without a value are left out.
type environment map[string]string

// UnmarshalJSON leaves out what is null.
func (e *environment) UnmarshalJSON(b []byte) error {
	var all map[string]*string
	if err := json.Unmarshal(b, &all); err != nil {
		return err
	}
	*e = environment{}
	for name, value := range all {
		if value != nil {
			(*e)[name] = *value
		}
	}
	return nil
}

type executeRequest struct {
	Command   string      `json:"command"`
	SessionID string      `json:"sessionId"`
	TimeoutMs float64     `json:"timeoutMs"`
	Env       environment `json:"env"`
	Cwd       string      `json:"cwd"`
}

type executeResult struct {
	Success   bool   `json:"success"`
	ExitCode  int    `json:"exitCode"`
	Stdout    string `json:"stdout"`
	Stderr    string `json:"stderr"`
	Command   string `json:"command"`
	Timestamp string `json:"timestamp"`
	Duration  int64  `json:"duration"` // milliseconds
	SessionID string `json:"sessionId,omitempty"`
}

type startEvent struct {
	Type      string `json:"type"`
	Command   string `json:"command"`
	Timestamp string `json:"timestamp"`
	SessionID string `json:"sessionId,omitempty"`
	PID       int    `json:"pid,omitempty"`
}

type dataEvent struct {
	Type      sandbox.Stream `json:"type"`
	Data      string         `json:"data"`
	ProcessID string         `json:"processId,omitempty"`
	Timestamp string         `json:"timestamp"`
}

func dataOf(s sandbox.Stream, data, process string) dataEvent {
	return dataEvent{Type: s, Data: data, ProcessID: process, Timestamp: now()}
}

type streamResult struct {
	Success  bool `json:"success"`
	ExitCode int  `json:"exitCode"`
}

type completeEvent struct {
	Type      string        `json:"type"`
	ExitCode  int           `json:"exitCode"`
	Timestamp string        `json:"timestamp"`
	Result    *streamResult `json:"result,omitempty"`
}

type errorEvent struct {
	Type      string `json:"type"`
	Error     string `json:"error"`
	Timestamp string `json:"timestamp"`
	ProcessID string `json:"processId,omitempty"`
}

// done is the answer of what has nothing to tell.
type done struct {
	Success   bool   `json:"success"`
	Message   string `json:"message,omitempty"`
	Timestamp string `json:"timestamp"`
}

// Processes.

type startRequest struct {
	Command   string      `json:"command"`
	SessionID string      `json:"sessionId"`
	ProcessID string      `json:"processId"`
	TimeoutMs float64     `json:"timeoutMs"`
	Env       environment `json:"env"`
	Cwd       string      `json:"cwd"`
}

type startResult struct {
	Success   bool   `json:"success"`
	ProcessID string `json:"processId"`
	PID       int    `json:"pid"`
	Command   string `json:"command"`
	Timestamp string `json:"timestamp"`
}

type processInfo struct {
	ID        string `json:"id"`
	PID       int    `json:"pid,omitempty"`
	Command   string `json:"command"`
	Status    string `json:"status"`
	StartTime string `json:"startTime"`
	EndTime   string `json:"endTime,omitempty"`
	ExitCode  *int   `json:"exitCode,omitempty"`
	SessionID string `json:"sessionId,omitempty"`
}

type processList struct {
	Success   bool          `json:"success"`
	Processes []processInfo `json:"processes"`
	Timestamp string        `json:"timestamp"`
}

type processAnswer struct {
	Success   bool        `json:"success"`
	Process   processInfo `json:"process"`
	Timestamp string      `json:"timestamp"`
}

type processKilled struct {
	Success   bool   `json:"success"`
	ProcessID string `json:"processId"`
	Timestamp string `json:"timestamp"`
}

type processesKilled struct {
	Success      bool   `json:"success"`
	CleanedCount int    `json:"cleanedCount"`
	Timestamp    string `json:"timestamp"`
}

type processLogs struct {
	Success   bool   `json:"success"`
	ProcessID string `json:"processId"`
	Stdout    string `json:"stdout"`
	Stderr    string `json:"stderr"`
	Timestamp string `json:"timestamp"`
}

type processEvent struct {
	Type      string `json:"type"` // "process_info" or "exit"
	ProcessID string `json:"processId"`
	Command   string `json:"command,omitempty"`
	Status    string `json:"status,omitempty"`
	ExitCode  *int   `json:"exitCode,omitempty"`
	Data      string `json:"data,omitempty"`
	Timestamp string `json:"timestamp"`
}

type portWatchRequest struct {
	Port      int     `json:"port"`
	Mode      string  `json:"mode"` // "http" or "tcp"
	Path      string  `json:"path"`
	StatusMin int     `json:"statusMin"`
	StatusMax int     `json:"statusMax"`
	ProcessID string  `json:"processId"`
	Interval  float64 `json:"interval"` // milliseconds
}

type portEvent struct {
	Type       string `json:"type"`
	Port       int    `json:"port"`
	StatusCode int    `json:"statusCode,omitempty"`
	ExitCode   *int   `json:"exitCode,omitempty"`
	Error      string `json:"error,omitempty"`
}

// Files.

type pathRequest struct {
	Path      string `json:"path"`
	SessionID string `json:"sessionId"`
	Encoding  string `json:"encoding"`  // of a read
	Recursive bool   `json:"recursive"` // of mkdir
}

type writeRequest struct {
	Path        string `json:"path"`
	Content     string `json:"content"`
	SessionID   string `json:"sessionId"`
	Encoding    string `json:"encoding"`
	Permissions string `json:"permissions"` // octal
}

type moveRequest struct {
	From      string `json:"oldPath"`
	To        string `json:"newPath"`
	Source    string `json:"sourcePath"`
	Dest      string `json:"destinationPath"`
	SessionID string `json:"sessionId"`
}

type listRequest struct {
	Path      string      `json:"path"`
	SessionID string      `json:"sessionId"`
	Options   listOptions `json:"options"`
}

type listOptions struct {
	Recursive bool `json:"recursive"`
	Hidden    bool `json:"includeHidden"`
}

// pathAnswer is the answer of what was done to a file.
type pathAnswer struct {
	Success   bool   `json:"success"`
	Path      string `json:"path"`
	NewPath   string `json:"newPath,omitempty"`
	Recursive *bool  `json:"recursive,omitempty"`
	Exists    *bool  `json:"exists,omitempty"`
	Bytes     *int64 `json:"bytesWritten,omitempty"`
	Timestamp string `json:"timestamp"`
}

type readAnswer struct {
	Success   bool   `json:"success"`
	Path      string `json:"path"`
	Content   string `json:"content"`
	Encoding  string `json:"encoding"`
	IsBinary  bool   `json:"isBinary"`
	MimeType  string `json:"mimeType"`
	Size      int64  `json:"size"`
	Timestamp string `json:"timestamp"`
}

type fileEvent struct {
	Type      string `json:"type"` // "metadata", "chunk" or "complete"
	MimeType  string `json:"mimeType,omitempty"`
	Size      *int64 `json:"size,omitempty"`
	IsBinary  *bool  `json:"isBinary,omitempty"`
	Encoding  string `json:"encoding,omitempty"`
	Data      string `json:"data,omitempty"`
	BytesRead *int64 `json:"bytesRead,omitempty"`
}

type fileInfo struct {
	Name        string      `json:"name"`
	Absolute    string      `json:"absolutePath"`
	Relative    string      `json:"relativePath"`
	Type        string      `json:"type"`
	Size        int64       `json:"size"`
	ModifiedAt  string      `json:"modifiedAt"`
	Mode        string      `json:"mode"` // "rw-r--r--"
	Permissions permissions `json:"permissions"`
}

type permissions struct {
	Readable   bool `json:"readable"`
	Writable   bool `json:"writable"`
	Executable bool `json:"executable"`
}

type listAnswer struct {
	Success   bool       `json:"success"`
	Path      string     `json:"path"`
	Files     []fileInfo `json:"files"`
	Count     int        `json:"count"`
	Timestamp string     `json:"timestamp"`
}

type watchRequest struct {
	Path      string   `json:"path"`
	Recursive *bool    `json:"recursive"`
	Include   []string `json:"include"`
	Exclude   []string `json:"exclude"`
	SessionID string   `json:"sessionId"`
	Since     string   `json:"since"` // of checkChanges
}

type watchEvent struct {
	Type      string `json:"type"` // "watching", "event", "error" or "stopped"
	Path      string `json:"path,omitempty"`
	WatchID   string `json:"watchId,omitempty"`
	EventType string `json:"eventType,omitempty"`
	IsDir     *bool  `json:"isDirectory,omitempty"`
	Timestamp string `json:"timestamp,omitempty"`
	Error     string `json:"error,omitempty"`
	Reason    string `json:"reason,omitempty"`
}

type changesAnswer struct {
	Success   bool   `json:"success"`
	Status    string `json:"status"` // "unchanged", "changed" or "resync"
	Version   string `json:"version"`
	Reason    string `json:"reason,omitempty"`
	Timestamp string `json:"timestamp"`
}

// Git, sessions and the rest.

type checkoutRequest struct {
	RepoURL   string  `json:"repoUrl"`
	SessionID string  `json:"sessionId"`
	Branch    string  `json:"branch"`
	TargetDir string  `json:"targetDir"`
	Depth     float64 `json:"depth"`
	TimeoutMs float64 `json:"timeoutMs"`
}

type checkoutAnswer struct {
	Success   bool   `json:"success"`
	Message   string `json:"message"`
	RepoURL   string `json:"repoUrl"`
	Branch    string `json:"branch"`
	TargetDir string `json:"targetDir"`
	Stdout    string `json:"stdout"`
	Stderr    string `json:"stderr"`
	ExitCode  int    `json:"exitCode"`
	Timestamp string `json:"timestamp"`
}

type sessionRequest struct {
	ID        string      `json:"id"`
	SessionID string      `json:"sessionId"` // to delete
	Name      string      `json:"name"`
	Env       environment `json:"env"`
	Cwd       string      `json:"cwd"`

	CommandTimeoutMs float64 `json:"commandTimeoutMs"` // of commands that have none of their own
}

type sessionAnswer struct {
	Success   bool   `json:"success"`
	ID        string `json:"id,omitempty"`
	SessionID string `json:"sessionId,omitempty"`
	Message   string `json:"message,omitempty"`
	Timestamp string `json:"timestamp"`

	// Placement is null: a sandbox is where its server is.
	Placement json.RawMessage `json:"containerPlacementId,omitempty"`

	Data any `json:"data,omitempty"`
}

type createdSession struct {
	ID        string  `json:"id"`
	Message   string  `json:"message"`
	Placement *string `json:"containerPlacementId"`
}

type pingAnswer struct {
	Success   bool   `json:"success"`
	Status    string `json:"status"`
	Message   string `json:"message"`
	Timestamp string `json:"timestamp"`
}

type versionAnswer struct {
	Success   bool   `json:"success"`
	Version   string `json:"version"`
	Timestamp string `json:"timestamp"`
}

type commandsAnswer struct {
	Success   bool     `json:"success"`
	Available []string `json:"availableCommands"`
	Count     int      `json:"count"`
	Timestamp string   `json:"timestamp"`
}

// Backups.

type archiveRequest struct {
	Dir         string       `json:"dir"`
	ArchivePath string       `json:"archivePath"`
	SessionID   string       `json:"sessionId"`
	Gitignore   bool         `json:"gitignore"`
	Excludes    []string     `json:"excludes"`
	Compression *compression `json:"compression"`
}

type compression struct {
	Format  string `json:"format"` // "gzip", "lz4" or "zstd"
	Threads int    `json:"threads"`
}

type archiveAnswer struct {
	Success     bool   `json:"success"`
	SizeBytes   int64  `json:"sizeBytes"`
	ArchivePath string `json:"archivePath"`
}

type restoreAnswer struct {
	Success bool   `json:"success"`
	Dir     string `json:"dir"`
}

type uploadRequest struct {
	ArchivePath string       `json:"archivePath"`
	Parts       []uploadPart `json:"parts"`
	SessionID   string       `json:"sessionId"`
}

type uploadPart struct {
	Number int    `json:"partNumber"`
	URL    string `json:"url"`
	Offset int64  `json:"offset"`
	Size   int64  `json:"size"`
}

type uploadAnswer struct {
	Success bool           `json:"success"`
	Parts   []uploadedPart `json:"parts"`
}

type uploadedPart struct {
	Number int    `json:"partNumber"`
	ETag   string `json:"etag"`
}
