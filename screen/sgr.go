package screen

import "strconv"

// attrCodes pairs each attribute with the code that sets it.
var attrCodes = []struct {
	attr attr
	code string
}{
	{bold, "1"}, {faint, "2"}, {italic, "3"}, {blink, "5"}, {fastBlink, "6"},
	{reverse, "7"}, {conceal, "8"}, {strike, "9"}, {overline, "53"},
}

// appendSGR writes the sequence that sets exactly this style.
func appendSGR(b []byte, s style) []byte {
	b = append(b, "\x1b[0"...)
	for _, a := range attrCodes {
		if s.attr&a.attr != 0 {
			b = append(append(b, ';'), a.code...)
		}
	}
	switch s.under {
	case 0:
	case 1:
		b = append(b, ";4"...)
	default:
		b = append(append(b, ";4:"...), '0'+s.under)
	}
	b = appendColor(b, s.fg, 30)
	b = appendColor(b, s.bg, 40)
	b = appendColor(b, s.line, 50)
	return append(b, 'm')
}

// appendColor writes a colour; base is 30, 40, or 50 for the underline's, which
// has no short form.
func appendColor(b []byte, c color, base int) []byte {
	n := int64(c & 0xffffff)
	number := func(v int64) { b = strconv.AppendInt(append(b, ';'), v, 10) }
	switch c &^ 0xffffff {
	case indexed:
		switch {
		case n < 8 && base < 50:
			number(int64(base) + n)
		case n < 16 && base < 50:
			number(int64(base) + 60 + n - 8)
		default:
			number(int64(base) + 8)
			number(5)
			number(n)
		}
	case direct:
		number(int64(base) + 8)
		number(2)
		number(n >> 16)
		number(n >> 8 & 0xff)
		number(n & 0xff)
	}
	return b
}

// applySGR changes a style as a sequence says.
func (s *style) applySGR(q *sequence) {
	if len(q.params) == 0 {
		*s = style{}
		return
	}
	for i := 0; i < len(q.params); {
		end := i + 1
		for end < len(q.params) && q.sub>>end&1 == 1 {
			end++
		}
		i = s.applyOne(q, i, end)
	}
}

// applyOne applies the parameter i, whose sub-parameters end before end, and
// returns the index of the next.
func (s *style) applyOne(q *sequence, i, end int) int {
	code := max(q.params[i], 0)
	switch {
	case code == 0:
		*s = style{}
	case code == 4:
		s.under = 1
		if end > i+1 {
			s.under = uint8(min(q.raw(i+1), 5))
		}
	case code == 21:
		s.under = 2
	case code == 22:
		s.attr &^= bold | faint
	case code == 24:
		s.under = 0
	case code == 25:
		s.attr &^= blink | fastBlink
	case code == 55:
		s.attr &^= overline
	case code == 38 || code == 48 || code == 58:
		return s.applyColor(q, i, end)
	case code == 39:
		s.fg = 0
	case code == 49:
		s.bg = 0
	case code == 59:
		s.line = 0
	case code >= 30 && code <= 37:
		s.fg = indexed | color(code-30)
	case code >= 40 && code <= 47:
		s.bg = indexed | color(code-40)
	case code >= 90 && code <= 97:
		s.fg = indexed | color(code-90+8)
	case code >= 100 && code <= 107:
		s.bg = indexed | color(code-100+8)
	default:
		s.applyAttr(code)
	}
	return end
}

// simple has the attributes whose code n sets them and 20+n unsets them.
var simple = [10]attr{1: bold, 2: faint, 3: italic, 5: blink, 6: fastBlink, 7: reverse, 8: conceal, 9: strike}

func (s *style) applyAttr(code int) {
	switch {
	case code < 10:
		s.attr |= simple[code]
	case code >= 23 && code <= 29:
		s.attr &^= simple[code-20]
	case code == 53:
		s.attr |= overline
	}
}

// applyColor reads 38;5;n, 38;2;r;g;b, and the same with colons, where a colour
// space may stand before the red.
func (s *style) applyColor(q *sequence, i, end int) int {
	to := &s.fg
	switch q.params[i] {
	case 48:
		to = &s.bg
	case 58:
		to = &s.line
	}
	p, next := q.params[i+1:end], end
	if end == i+1 { // semicolons
		p = q.params[end:]
		switch {
		case len(p) >= 2 && p[0] == 5:
			p, next = p[:2], end+2
		case len(p) >= 4 && p[0] == 2:
			p, next = p[:4], end+4
		default:
			return len(q.params)
		}
	} else if len(p) >= 5 && p[0] == 2 {
		p = append([]int{2}, p[2:5]...)
	}
	channel := func(i int) color { return color(min(max(p[i], 0), 255)) }
	switch {
	case len(p) >= 2 && p[0] == 5:
		*to = indexed | channel(1)
	case len(p) >= 4 && p[0] == 2:
		*to = direct | channel(1)<<16 | channel(2)<<8 | channel(3)
	}
	return next
}
