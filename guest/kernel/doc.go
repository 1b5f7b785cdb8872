// Package kernel drives Jupyter kernels: it starts them, runs code in them one run
// at a time, and keeps what each run showed for whoever asks later.
//
// It speaks the Jupyter protocol over ZMTP 3, as a client, on sockets in a folder of
// each kernel's own. A kernel is as hostile as the code that it runs: frames, messages
// and logs have bounds, and what a kernel sends out of order is dropped. The ZMTP
// library for Go takes any length that a peer names, so the few frames that a client
// needs are read here.
package kernel
