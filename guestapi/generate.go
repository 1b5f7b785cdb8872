package guestapi

// The generators' versions are pinned here; protoc itself comes from the
// distribution (package protobuf-compiler).
//go:generate sh -c "GOBIN=$PWD/.gen go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12"
//go:generate sh -c "GOBIN=$PWD/.gen go install connectrpc.com/connect/cmd/protoc-gen-connect-go@v1.21.1"
//go:generate sh -c "PATH=$PWD/.gen:$PATH protoc -I. --go_out=. --go_opt=paths=source_relative --connect-go_out=. --connect-go_opt=paths=source_relative v1/*.proto"
//go:generate rm -r .gen
