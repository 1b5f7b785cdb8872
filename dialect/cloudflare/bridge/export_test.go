package bridge

// Routes lists what is served, as "METHOD pattern".
func Routes() map[string]bool {
	all := map[string]bool{}
	for _, rt := range New(Config{}).routes {
		all[rt.method+" "+rt.pattern] = true
	}
	return all
}
