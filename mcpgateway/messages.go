package mcpgateway

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
)

// maxMessage bounds one message of a child, in bytes.
const maxMessage = 32 << 20

// messages reads the lines of a child that are messages. Others, such as those in which
// programs that start programs say so, go to the log.
type messages struct {
	from *bufio.Reader
	log  io.Writer
	rest []byte // of the present line
	buf  []byte
}

func newMessages(from io.Reader, log io.Writer) *messages {
	return &messages{from: bufio.NewReaderSize(from, 64<<10), log: log}
}

func (m *messages) Read(p []byte) (int, error) {
	for len(m.rest) == 0 {
		line, err := m.line()
		if t := bytes.TrimLeft(line, " \t"); len(t) > 0 && t[0] == '{' {
			m.rest = line
		} else if len(bytes.TrimSpace(line)) > 0 {
			m.log.Write(line)
		}
		if err != nil && len(m.rest) == 0 {
			return 0, err
		}
	}
	n := copy(p, m.rest)
	m.rest = m.rest[n:]
	return n, nil
}

// line is the next one with its end; the last may have none.
func (m *messages) line() ([]byte, error) {
	m.buf = m.buf[:0]
	if cap(m.buf) > 1<<20 { // one that was long keeps nothing
		m.buf = nil
	}
	for {
		part, err := m.from.ReadSlice('\n')
		if len(m.buf)+len(part) > maxMessage {
			return nil, fmt.Errorf("a message has more than %d bytes", maxMessage)
		}
		m.buf = append(m.buf, part...)
		if err == bufio.ErrBufferFull {
			continue
		}
		return m.buf, err
	}
}
