// Package envd holds the services that E2B's clients find in a sandbox, on its
// port 49983: their messages, and the code that is generated of them.
package envd

//go:generate sh -c "GOBIN=$PWD/.gen GOFLAGS= go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12"
//go:generate sh -c "GOBIN=$PWD/.gen GOFLAGS= go install connectrpc.com/connect/cmd/protoc-gen-connect-go@v1.21.1"
//go:generate sh -c "PATH=$PWD/.gen:$PATH protoc -I. --go_out=. --go_opt=paths=source_relative --connect-go_out=. --connect-go_opt=paths=source_relative process/process.proto filesystem/filesystem.proto"
//go:generate rm -r .gen
