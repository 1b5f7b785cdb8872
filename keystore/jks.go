package keystore

import (
	"bytes"
	"crypto/sha1"
	"crypto/subtle"
	"encoding/binary"
	"time"
	"unicode/utf16"

	"golang.org/x/crypto/cryptobyte"
)

// The form JKS: a magic number, a version, a count, entries, and a sum over all that
// and the password.
var jksMagic = []byte{0xfe, 0xed, 0xfe, 0xed}

const (
	jksVersion  = 2
	jksPassword = "changeit"
	jksType     = "X.509"

	jksKey       = 1 // tags of entries
	jksAuthority = 2
)

func addJKS(list []byte, name string, certificate []byte) ([]byte, error) {
	body, sum := list[:max(0, len(list)-sha1.Size)], list[max(0, len(list)-sha1.Size):]
	s := cryptobyte.String(body)
	var version, count uint32
	if !s.Skip(len(jksMagic)) || !s.ReadUint32(&version) || !s.ReadUint32(&count) || version != jksVersion {
		return nil, ErrForm
	}
	own := jksSum(body)
	if subtle.ConstantTimeCompare(own[:], sum) != 1 {
		return nil, ErrSealed
	}
	var kept []byte
	n := uint32(1)
	for range count {
		entry := s
		found, ok := skipJKS(&s)
		if !ok {
			return nil, ErrForm
		}
		if found != name {
			kept, n = append(kept, entry[:len(entry)-len(s)]...), n+1
		}
	}
	if !s.Empty() {
		return nil, ErrForm
	}
	out := bytes.NewBuffer(bytes.Clone(jksMagic))
	for _, v := range []any{uint32(jksVersion), n, kept, uint32(jksAuthority), uint16(len(name)), []byte(name), time.Now().UnixMilli(),
		uint16(len(jksType)), []byte(jksType), uint32(len(certificate)), certificate} {
		if err := binary.Write(out, binary.BigEndian, v); err != nil {
			return nil, err
		}
	}
	own = jksSum(out.Bytes())
	return append(out.Bytes(), own[:]...), nil
}

// skipJKS reads one entry, and returns its name.
func skipJKS(s *cryptobyte.String) (name string, ok bool) {
	var tag uint32
	var alias cryptobyte.String
	if !s.ReadUint32(&tag) || !s.ReadUint16LengthPrefixed(&alias) || !s.Skip(8) { // when it was made
		return "", false
	}
	certificates := uint32(1)
	if tag == jksKey && !(skip32(s) && s.ReadUint32(&certificates)) {
		return "", false
	}
	if tag != jksKey && tag != jksAuthority {
		return "", false
	}
	for range certificates {
		var kind cryptobyte.String
		if !s.ReadUint16LengthPrefixed(&kind) || !skip32(s) {
			return "", false
		}
	}
	return string(alias), true
}

// skip32 skips bytes behind their count.
func skip32(s *cryptobyte.String) bool {
	var n uint32
	return s.ReadUint32(&n) && uint64(n) <= uint64(len(*s)) && s.Skip(int(n))
}

func jksSum(body []byte) [sha1.Size]byte {
	h := sha1.New()
	for _, c := range utf16.Encode([]rune(jksPassword)) {
		h.Write([]byte{byte(c >> 8), byte(c)})
	}
	h.Write([]byte("Mighty Aphrodite"))
	h.Write(body)
	return [sha1.Size]byte(h.Sum(nil))
}
