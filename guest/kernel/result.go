package kernel

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// Result is something that a run showed, in one form or several.
type Result struct {
	Main      bool   // the value of the code's last expression
	Forms     []Form // by media type
	DisplayID string
	Update    bool             // it takes the place of what had its display id
	Omitted   map[string]int64 // media types that were too large, with their bytes
}

// Form is one form of a result. What the kernel gave as text is that text, in
// base64 if the media type is binary; anything else is JSON.
type Form struct {
	Type string
	JSON bool
	Data []byte
}

// Bounds on a result.
const (
	maxForms     = 32
	maxFormBytes = 16 << 20 // of all forms together
	maxTypeBytes = 128
	maxDisplayID = 256
)

func (r *Result) size() int {
	n := len(r.DisplayID)
	for _, f := range r.Forms {
		n += len(f.Type) + len(f.Data) + 32
	}
	return n
}

// shown is the content of the messages that show something.
type shown struct {
	Data      map[string]json.RawMessage `json:"data"`
	Transient struct {
		DisplayID string `json:"display_id"`
	} `json:"transient"`
}

// resultOf takes over what a kernel shows, the smallest forms first: so a form that
// is too large takes no other with it.
func resultOf(content json.RawMessage) (*Result, bool) {
	var s shown
	if json.Unmarshal(content, &s) != nil {
		return nil, false
	}
	r := &Result{DisplayID: clip(s.Transient.DisplayID, maxDisplayID)}
	var all []Form
	for kind, raw := range s.Data {
		if kind == "" || len(kind) > maxTypeBytes {
			continue
		}
		all = append(all, formOf(kind, raw))
	}
	slices.SortFunc(all, func(a, b Form) int {
		if len(a.Data) != len(b.Data) {
			return len(a.Data) - len(b.Data)
		}
		return strings.Compare(a.Type, b.Type)
	})
	left := maxFormBytes
	for _, f := range all {
		if len(f.Data) <= left && len(r.Forms) < maxForms {
			left -= len(f.Data)
			r.Forms = append(r.Forms, f)
			continue
		}
		if r.Omitted == nil {
			r.Omitted = map[string]int64{}
		}
		if len(r.Omitted) < maxForms {
			r.Omitted[f.Type] = int64(len(f.Data))
		}
	}
	slices.SortFunc(r.Forms, func(a, b Form) int { return strings.Compare(a.Type, b.Type) })
	return r, true
}

// formOf reads one form: a text, a list of lines, or JSON.
func formOf(kind string, raw json.RawMessage) Form {
	var text string
	if !isJSON(kind) && json.Unmarshal(raw, &text) == nil {
		if isBinary(kind) {
			text = strings.Join(strings.Fields(text), "") // lines of base64
		}
		return Form{Type: kind, Data: []byte(text)}
	}
	var lines []string
	if !isJSON(kind) && json.Unmarshal(raw, &lines) == nil && lines != nil {
		return Form{Type: kind, Data: []byte(strings.Join(lines, ""))}
	}
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return Form{Type: kind, JSON: true, Data: []byte("null")}
	}
	return Form{Type: kind, JSON: true, Data: b.Bytes()}
}

func isJSON(kind string) bool {
	return kind == "application/json" || strings.HasSuffix(kind, "+json")
}

func isBinary(kind string) bool {
	return kind == "application/pdf" || strings.HasPrefix(kind, "image/") && kind != "image/svg+xml"
}

// clip cuts a text to at most n bytes of whole characters.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "")
}
