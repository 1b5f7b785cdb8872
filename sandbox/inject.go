package sandbox

// Inject says what is put into the requests to a host on the sandbox's behalf.
type Inject struct {
	Host   string `json:"host"`             // "api.example.com", "*.example.com"
	Secret string `json:"secret,omitempty"` // by name
}
