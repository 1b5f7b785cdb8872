package guestapi

import "connectrpc.com/connect"

// HintHeader carries, on an error, one sentence about what the caller can do.
const HintHeader = "Berth-Hint"

// FileError is the JSON body of a file route's error. Code is a kind's text.
type FileError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// Unpacked is the JSON body that answers an unpacked tar stream.
type Unpacked struct {
	Files, Folders, Links, Bytes int64
}

// kinds pairs each kind's text with the Connect code that carries it.
var kinds = []struct {
	kind string
	code connect.Code
}{
	{"invalid", connect.CodeInvalidArgument},
	{"unauthorized", connect.CodeUnauthenticated},
	{"forbidden", connect.CodePermissionDenied},
	{"not_found", connect.CodeNotFound},
	{"conflict", connect.CodeFailedPrecondition},
	{"exhausted", connect.CodeResourceExhausted},
	{"unsupported", connect.CodeUnimplemented},
	{"timeout", connect.CodeDeadlineExceeded},
	{"unavailable", connect.CodeUnavailable},
	{"internal", connect.CodeInternal},
}

// KindOf gives the text of the kind that a code carries. A code that stands for
// no kind is the nearest one, "internal" at worst.
func KindOf(code connect.Code) string {
	for _, k := range kinds {
		if k.code == code {
			return k.kind
		}
	}
	switch code {
	case connect.CodeCanceled:
		return "unavailable"
	case connect.CodeOutOfRange:
		return "invalid"
	case connect.CodeAlreadyExists, connect.CodeAborted:
		return "conflict"
	}
	return "internal"
}

// CodeOf gives the code that carries a kind; an unknown kind is CodeInternal.
func CodeOf(kind string) connect.Code {
	for _, k := range kinds {
		if k.kind == kind {
			return k.code
		}
	}
	return connect.CodeInternal
}
