package sandbox

import "time"

// Status is what a server says of itself.
type Status struct {
	Version   string        `json:"version"`
	Started   time.Time     `json:"started"`
	Classes   []ClassStatus `json:"classes"`   // the first is the default
	Sandboxes map[State]int `json:"sandboxes"` // how many are in each state
	Creating  int           `json:"creating"`  // creates under way
	Queued    int           `json:"queued"`    // creates that wait for their turn
	Warm      int           `json:"warm"`      // machines that wait for a create

	Disk *DiskStatus `json:"disk,omitempty"` // for the operator; nil: nobody looks
}

// ClassStatus says what a server can do in one isolation class.
type ClassStatus struct {
	Class    string            `json:"class"`
	Usable   bool              `json:"usable"`             // sandboxes can be made
	Problem  string            `json:"problem,omitempty"`  // why not
	Hint     string            `json:"hint,omitempty"`     // what to do about it
	Version  string            `json:"version,omitempty"`  // of the engine beneath
	Survives bool              `json:"survives"`           // sandboxes outlive a restart of the server
	Isolates bool              `json:"isolates"`           // hostile code may run in it
	Details  map[string]string `json:"details,omitempty"`  // for people
	Warnings []string          `json:"warnings,omitempty"` // what works less well than it could, and the remedy
}
