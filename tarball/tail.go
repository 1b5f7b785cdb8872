package tarball

import "io"

// endMark is the least number of zeros that end a stream: a block of them.
const endMark = 512

// tailReader knows how a stream ends. Package tar takes one that stops between
// two entries for whole.
type tailReader struct {
	r     io.Reader
	some  bool // the stream is not empty
	zeros int  // at its end so far
}

func (t *tailReader) Read(b []byte) (int, error) {
	n, err := t.r.Read(b)
	t.some = t.some || n > 0
	run := 0
	for run < n && b[n-1-run] == 0 {
		run++
	}
	if run < n {
		t.zeros = 0
	}
	t.zeros = min(t.zeros+run, endMark)
	return n, err
}

// cut reports whether a stream that has been read has no end mark.
func (t *tailReader) cut() bool { return t.some && t.zeros < endMark }
