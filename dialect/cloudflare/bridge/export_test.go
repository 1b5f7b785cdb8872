package bridge

import (
	"encoding/json"
	"strings"
)

// Routes lists what is served, as "METHOD pattern".
func Routes() map[string]bool {
	all := map[string]bool{}
	for _, rt := range New(Config{}).routes {
		all[rt.method+" "+rt.pattern] = true
	}
	return all
}

// PlanMount is what s3fs is given for a request to mount.
func PlanMount(body []byte) (source, options, keys string, err error) {
	var q bucketMount
	if err := json.Unmarshal(body, &q); err != nil {
		return "", "", "", err
	}
	m, err := q.plan()
	return m.source, strings.Join(m.options, ","), m.keys, err
}
