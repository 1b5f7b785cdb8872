package docker

import "net/http"

// apiVersion is the version of the API that is named; any is served.
const apiVersion = "1.47"

func (d *Dialect) ping(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Api-Version", apiVersion)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, err := w.Write([]byte("OK"))
	return err
}

func (d *Dialect) version(w http.ResponseWriter, _ *http.Request) error {
	writeJSON(w, http.StatusOK, map[string]any{
		"Version": "berth", "ApiVersion": apiVersion, "MinAPIVersion": "1.24", "Os": "linux", "Arch": "amd64",
	})
	return nil
}

func (d *Dialect) info(w http.ResponseWriter, _ *http.Request) error {
	writeJSON(w, http.StatusOK, map[string]any{
		"ID": "berth", "Name": "berth", "ServerVersion": "berth", "OSType": "linux", "Architecture": "x86_64", "SecurityOptions": []string{},
	})
	return nil
}

// network describes the one network that containers seem to be in. workerd listens
// on its gateway's address for what the containers send, and needs no other.
func (d *Dialect) network(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("network")
	writeJSON(w, http.StatusOK, map[string]any{
		"Name": name, "Id": hexID("network", name), "Driver": "bridge", "Scope": "local",
		"IPAM": map[string]any{"Driver": "default", "Config": []map[string]string{{"Subnet": "127.0.0.0/8", "Gateway": "127.0.0.1"}}},
	})
	return nil
}
