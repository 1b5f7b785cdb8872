package kernel

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"
)

// protocolVersion is that of Jupyter's messages.
const protocolVersion = "5.3"

// delimiter stands between the addresses of a message and its parts.
const delimiter = "<IDS|MSG>"

// header says what a message is.
type header struct {
	ID       string `json:"msg_id"`
	Session  string `json:"session"`
	Username string `json:"username"`
	Date     string `json:"date"`
	Type     string `json:"msg_type"`
	Version  string `json:"version"`
}

// message is one message of a kernel.
type message struct {
	Type    string // msg_type
	Parent  string // id of the request that it answers
	Content json.RawMessage
}

// signer makes and checks the signatures of one kernel's messages.
type signer []byte

func (k signer) sum(parts ...[]byte) []byte {
	h := hmac.New(sha256.New, k)
	for _, p := range parts {
		h.Write(p)
	}
	return []byte(hex.EncodeToString(h.Sum(nil)))
}

// encode makes the frames of a request.
func (k signer) encode(id, session, kind string, content any) ([][]byte, error) {
	head, err := json.Marshal(header{ID: id, Session: session, Username: "berth", Date: time.Now().UTC().Format(time.RFC3339Nano), Type: kind, Version: protocolVersion})
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(content)
	if err != nil {
		return nil, err
	}
	empty := []byte("{}")
	return [][]byte{[]byte(delimiter), k.sum(head, empty, empty, body), head, empty, empty, body}, nil
}

// decode reads the frames of a message that the kernel has signed. Buffers behind
// them are left out.
func (k signer) decode(parts [][]byte) (message, error) {
	for i, p := range parts {
		if string(p) != delimiter {
			continue
		}
		if parts = parts[i+1:]; len(parts) < 5 {
			return message{}, errors.New("a message lacks parts")
		}
		return k.open(parts)
	}
	return message{}, errors.New("a message without delimiter")
}

// open reads signature, header, parent's header, metadata and content.
func (k signer) open(parts [][]byte) (m message, err error) {
	if !hmac.Equal(parts[0], k.sum(parts[1:5]...)) {
		return m, errors.New("a message's signature is wrong")
	}
	var head, parent header
	if err = json.Unmarshal(parts[1], &head); err != nil {
		return m, errors.New("a message's header is malformed")
	}
	if p := bytes.TrimSpace(parts[2]); len(p) > 0 && json.Unmarshal(p, &parent) != nil {
		return m, errors.New("a message's parent is malformed")
	}
	if !json.Valid(parts[4]) {
		return m, errors.New("a message's content is malformed")
	}
	return message{Type: head.Type, Parent: parent.ID, Content: parts[4]}, nil
}
