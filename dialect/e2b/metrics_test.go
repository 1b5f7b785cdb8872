package e2b

import (
	"net/url"
	"testing"
	"time"
)

func TestTimesOf(t *testing.T) {
	for query, want := range map[string][2]int64{
		"":                         {0, 0},
		"start=999000":             {999000, 0},
		"end=999990":               {0, 999991},
		"start=998000&end=1000000": {998000, 1000001},
	} {
		q, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		from, to, err := timesOf(q)
		unix := func(t time.Time) int64 {
			if t.IsZero() {
				return 0
			}
			return t.Unix()
		}
		if got := [2]int64{unix(from), unix(to)}; err != nil || got != want {
			t.Errorf("%q: %v, %v", query, got, err)
		}
	}
	for _, query := range []string{"start=", "end=soon", "start=-1", "end=99999999999999999"} {
		q, _ := url.ParseQuery(query)
		if _, _, err := timesOf(q); err == nil {
			t.Errorf("%q was taken", query)
		}
	}
}
