package main

import (
	"context"
	"path"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/sandbox"
)

// endpoint is one side of a copy. ID "" means this machine; path "-" there
// means a standard stream.
type endpoint struct {
	id   string
	path string
}

func (p *program) cpCommand() *cobra.Command {
	var recursive bool
	cmd := &cobra.Command{
		Use:   "cp [-r] LOCAL ID:PATH | ID:PATH LOCAL",
		Short: "Copy files into or out of a sandbox",
		Long: "Copy a file, or with -r a directory, into or out of a sandbox. Permissions and\n" +
			"symbolic links are kept; missing directories above the target are made.\n\n" +
			"LOCAL may be \"-\": standard input or output. A target that is a directory, or ends\n" +
			"in \"/\", receives the source under its own name; a source that ends in \"/.\" stands\n" +
			"for what the directory holds. A local name with a colon is written ./NAME.",
		Example: "  berth cp notes.txt $ID:/workspace/\n" +
			"  berth cp -r $ID:/workspace/out ./results\n" +
			"  berth cp $ID:/var/log/app.log - | tail",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: p.completeCopy,
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.cp(cmd.Context(), args[0], args[1], recursive)
		},
	}
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "copy directories with all they hold")
	return cmd
}

func (p *program) cp(ctx context.Context, from, to string, recursive bool) error {
	src, err := parseEndpoint(from)
	if err != nil {
		return err
	}
	dst, err := parseEndpoint(to)
	if err != nil {
		return err
	}
	switch {
	case src.id == "" && dst.id == "":
		return usage("a path in a sandbox is written ID:/PATH", "neither %q nor %q is in a sandbox", from, to)
	case src.id != "" && dst.id != "":
		return usage(`copy through here: berth cp ID:/A - | berth cp - ID:/B`, "both sides are in a sandbox")
	}
	c, err := p.connect()
	if err != nil {
		return err
	}
	t := &transfer{client: c, progress: newStep(p.err, copyStep), recursive: recursive, in: p.in, out: p.out}
	if src.id != "" {
		err = t.download(ctx, src, dst.path)
	} else {
		err = t.upload(ctx, src.path, dst)
	}
	t.end(err)
	if err != nil {
		return err
	}
	return p.reportCopy(t, src.path == "-" || dst.path == "-")
}

// parseEndpoint tells "ID:/PATH" from a local name. A colon before any slash
// means a sandbox.
func parseEndpoint(s string) (endpoint, error) {
	before, after, found := strings.Cut(s, ":")
	if !found || strings.Contains(before, "/") {
		if s == "" {
			return endpoint{}, usage("", "a path is empty")
		}
		return endpoint{path: s}, nil
	}
	if err := sandbox.CheckRef(before); err != nil {
		return endpoint{}, &sandbox.Error{Op: "", Kind: sandbox.Invalid, Err: err,
			Hint: "a path in a sandbox is written ID:/PATH; write ./" + s + " for a local file"}
	}
	if err := sandbox.CheckPath(after); err != nil {
		return endpoint{}, err
	}
	return endpoint{id: before, path: after}, nil
}

// contents reports whether name stands for what a directory holds: "dir/.".
func contents(name string) bool { return name == "." || strings.HasSuffix(name, "/.") }

// into is the path of something called name that is copied to the directory or
// file dst.
func into(dst, name string, dstIsDir bool) string {
	if dstIsDir || strings.HasSuffix(dst, "/") {
		return path.Join(dst, name)
	}
	return path.Clean(dst)
}
