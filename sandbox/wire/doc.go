// Package wire is the form in which the vocabulary crosses the native API: the
// bodies that have no type of their own there, and the two framings of a stream.
package wire

// The media types of a stream of process events.
const (
	TypeJSON = "application/json"          // one object at the end
	TypeSSE  = "text/event-stream"         // server-sent events, see sse.go
	TypeRaw  = "application/vnd.berth.raw" // frames, see frame.go

	TypeNDJSON = "application/x-ndjson" // one object a line; an empty line says nothing
)

// Header names of the native API.
const (
	HeaderRequestID = "X-Request-Id"
	HeaderAccount   = "Berth-Account"     // of the operator: be one of this account
	HeaderFileInfo  = "X-Berth-File-Info" // a FileInfo as JSON in ASCII
)
