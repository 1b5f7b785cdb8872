package cloudflare

import (
	"net/http"
	"path"
	"strings"
	"unicode/utf8"
)

// Types of text whose encoding these clients are told too.
const (
	plainText  = "text/plain;charset=utf-8"
	scriptText = "text/javascript;charset=utf-8"
)

// types has the MIME types of file names' endings. The system's own tables differ
// from machine to machine.
var types = map[string]string{
	".txt": plainText, ".log": plainText, ".md": "text/markdown", ".csv": "text/csv", ".tsv": "text/tab-separated-values",
	".html": "text/html;charset=utf-8", ".htm": "text/html;charset=utf-8", ".css": "text/css;charset=utf-8",
	".js": scriptText, ".mjs": scriptText, ".cjs": scriptText, ".jsx": scriptText, ".ts": scriptText, ".tsx": scriptText, ".mts": scriptText,
	".json": "application/json;charset=utf-8", ".map": "application/json;charset=utf-8", ".xml": "application/xml",
	".yaml": "text/yaml", ".yml": "text/yaml", ".toml": "text/plain", ".ini": plainText, ".env": "text/plain", ".sh": "text/x-shellscript",
	".py": "text/x-python", ".go": "text/x-go", ".rs": "text/x-rust", ".c": "text/x-c", ".h": "text/x-c", ".cpp": "text/x-c++", ".java": "text/x-java",
	".rb": "text/x-ruby", ".php": "text/x-php", ".sql": "text/x-sql", ".svg": "image/svg+xml",
	".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp", ".ico": "image/x-icon", ".bmp": "image/bmp",
	".pdf": "application/pdf", ".zip": "application/zip", ".gz": "application/gzip", ".tgz": "application/gzip", ".tar": "application/x-tar",
	".bz2": "application/x-bzip2", ".xz": "application/x-xz", ".zst": "application/zstd", ".7z": "application/x-7z-compressed",
	".mp3": "audio/mpeg", ".wav": "audio/wav", ".mp4": "video/mp4", ".webm": "video/webm", ".wasm": "application/wasm",
	".woff": "font/woff", ".woff2": "font/woff2", ".ttf": "font/ttf", ".otf": "font/otf",
}

// sniffed is how much of a file is looked at.
const sniffed = 8 << 10

// mimeOf is a file's MIME type, by its name or else by how it begins.
func mimeOf(name string, head []byte) string {
	if t, ok := types[strings.ToLower(path.Ext(name))]; ok {
		return t
	}
	t, _, _ := strings.Cut(http.DetectContentType(head), ";")
	if t != "application/octet-stream" && t != "text/plain" {
		return t
	}
	if isText(head) {
		return "text/plain"
	}
	return "application/octet-stream"
}

// isText reports whether bytes that may end within a character are text.
func isText(b []byte) bool {
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == 0 || r == utf8.RuneError && n == 1 && utf8.FullRune(b) {
			return false
		}
		b = b[n:]
	}
	return true
}

// isBinary reports whether files of a type are given in base64.
func isBinary(mime string) bool {
	switch mime, _, _ = strings.Cut(mime, ";"); mime {
	case "application/json", "application/xml", "application/javascript", "image/svg+xml":
		return false
	}
	return !strings.HasPrefix(mime, "text/")
}
