package screen

import "unicode/utf8"

// Bounds on one escape sequence. Longer ones are consumed without effect.
const (
	maxParams = 32
	maxParam  = 65535
	maxHeld   = 4096 // bytes of a sequence, and of a string's payload
)

type parserState uint8

const (
	ground parserState = iota
	escape
	escapeInter
	csi
	csiInter
	csiIgnore
	oscString
	otherString // DCS, SOS, PM, APC: consumed up to their end
)

// parser splits a stream into characters, controls and sequences, as the state
// machine of the VT500 does, with UTF-8 decoded where text may stand.
type parser struct {
	to    performer
	state parserState
	seq   sequence
	text  []byte // of an OSC, so far
	rune  []byte // begun, not yet whole

	// held is what would bring another terminal into the present state: the
	// bytes since the ground state was left.
	held []byte
}

// performer does what a parser finds.
type performer interface {
	print(r rune)
	text(ascii []byte) // printable ones, as one print each
	control(b byte)
	escape(inter, final byte)
	csi(q *sequence)
	osc(text []byte)
}

// sequence is one control sequence. A missing parameter is -1.
type sequence struct {
	prefix, inter, final byte
	params               []int
	sub                  uint64 // bit i: parameter i belongs to the one before
}

// param is the i-th parameter; a missing one or 0 counts as def.
func (q *sequence) param(i, def int) int {
	if i < len(q.params) && q.params[i] > 0 {
		return q.params[i]
	}
	return def
}

// raw is the i-th parameter with 0 for a missing one.
func (q *sequence) raw(i int) int { return q.param(i, 0) }

func (p *parser) write(b []byte) {
	for len(b) > 0 {
		if p.state == ground && len(p.rune) == 0 {
			n := 0
			for n < len(b) && b[n] >= ' ' && b[n] < 0x7f {
				n++
			}
			if n > 0 {
				p.to.text(b[:n])
				b = b[n:]
				continue
			}
		}
		p.advance(b[0])
		b = b[1:]
	}
}

func (p *parser) advance(b byte) {
	if p.state == ground && b >= ' ' && b < 0x7f && len(p.rune) == 0 {
		p.to.print(rune(b))
		return
	}
	if p.state == ground && (b >= utf8.RuneSelf || len(p.rune) > 0) {
		p.decode(b)
		return
	}
	switch {
	case b == 0x18 || b == 0x1a: // cancelled
		p.enter(ground)
	case b == 0x1b:
		if p.state == oscString {
			p.endOSC()
		}
		p.enter(escape)
		p.held = append(p.held, b)
	case p.state == oscString:
		p.inOSC(b)
	case p.state == otherString:
		p.hold(b, "\x1bX")
	case b < ' ':
		p.to.control(b)
	case b == 0x7f:
	case b >= utf8.RuneSelf: // no sequence holds it
		p.enter(ground)
		p.decode(b)
	default:
		p.inSequence(b)
	}
}

// decode collects a character of more than one byte; what is none of UTF-8 is
// one U+FFFD a byte.
func (p *parser) decode(b byte) {
	p.rune = append(p.rune, b)
	for len(p.rune) > 0 && utf8.FullRune(p.rune) {
		r, size := utf8.DecodeRune(p.rune)
		rest := p.rune[size:]
		if r < utf8.RuneSelf { // it followed a broken one
			p.rune = p.rune[:0]
			p.advance(byte(r))
			return
		}
		p.rune = append(p.rune[:0], rest...)
		if r >= 0x80 && r < 0xa0 { // a C1 control is ESC and its seven-bit twin
			p.advance(0x1b)
			p.advance(byte(r - 0x40))
			return
		}
		p.to.print(r)
	}
}

func (p *parser) enter(s parserState) {
	p.state = s
	p.held = p.held[:0]
	p.rune = p.rune[:0]
	if s == escape {
		p.seq = sequence{params: p.seq.params[:0]}
	}
}

// hold remembers a byte; instead of a sequence that is too long it holds one
// that is as unfinished and has no effect.
func (p *parser) hold(b byte, instead string) {
	if len(p.held) < maxHeld {
		p.held = append(p.held, b)
		return
	}
	p.held = append(p.held[:0], instead...)
	p.text = nil
	p.seq.final = 0xff // marks it as given up
}

func (p *parser) inSequence(b byte) {
	if p.state == escapeInter {
		p.hold(b, "\x1b  ")
	} else {
		p.hold(b, "\x1b[0<")
	}
	switch p.state {
	case escape:
		p.inEscape(b)
	case escapeInter:
		if b < 0x30 {
			p.seq.inter = b
			return
		}
		inter := p.seq.inter
		p.enter(ground)
		p.to.escape(inter, b)
	default:
		p.inCSI(b)
	}
}

func (p *parser) inEscape(b byte) {
	switch {
	case b == '[':
		p.state = csi
	case b == ']':
		p.state, p.text = oscString, p.text[:0]
	case b == 'P' || b == 'X' || b == '^' || b == '_':
		p.state = otherString
	case b < 0x30:
		p.state, p.seq.inter = escapeInter, b
	default:
		p.enter(ground)
		p.to.escape(0, b)
	}
}

func (p *parser) inCSI(b byte) {
	q := &p.seq
	switch {
	case q.final == 0xff && p.state != csiIgnore:
		p.state = csiIgnore
		fallthrough
	case p.state == csiIgnore:
		if b >= 0x40 {
			p.enter(ground)
		}
	case b >= 0x40:
		q.final = b
		p.enter(ground)
		p.to.csi(q)
	case b < 0x30:
		p.state, q.inter = csiInter, b
	case p.state == csiInter:
		p.state = csiIgnore
	case b >= '<':
		if len(q.params) > 0 || q.prefix != 0 {
			p.state = csiIgnore
			return
		}
		q.prefix = b
	default:
		q.digit(b)
	}
}

// digit takes 0-9, ':' or ';'.
func (q *sequence) digit(b byte) {
	if len(q.params) == 0 {
		q.params = append(q.params, -1)
	}
	if b == ':' || b == ';' {
		if len(q.params) <= maxParams {
			if b == ':' {
				q.sub |= 1 << len(q.params)
			}
			q.params = append(q.params, -1)
		}
		return
	}
	if len(q.params) > maxParams {
		return // too many: the last is not looked at
	}
	v := &q.params[len(q.params)-1]
	*v = min(max(*v, 0)*10+int(b-'0'), maxParam)
}

func (p *parser) inOSC(b byte) {
	switch {
	case b == 0x07:
		p.endOSC()
		p.enter(ground)
	case b >= ' ':
		p.text = append(p.text, b)
		p.hold(b, "\x1b]9999;")
	}
}

func (p *parser) endOSC() {
	if p.seq.final != 0xff && len(p.text) > 0 {
		p.to.osc(p.text)
	}
	p.text = p.text[:0]
}

// pending is what a terminal must get to be in the middle of what this one is.
func (p *parser) pending() []byte { return append(p.held[:len(p.held):len(p.held)], p.rune...) }
