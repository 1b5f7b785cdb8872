// Package mcpgateway shows several MCP servers as one.
//
// Each server is a child process that speaks the protocol over its standard input and
// output. What they have — tools, resources, prompts — is shown together over HTTP, to
// whoever has the token. A child that ends is started again; when the gateway ends, they
// do.
//
// Everything that a child says is hostile: a message has a size at most, a list a length,
// a call a time. Children get the environment of the gateway without its token, and run
// as an account of their own.
package mcpgateway
