package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A type that is saved as nothing when it is zero has no hook: an upgrade of the module
// that gave it one would lose what that does.
func TestPlainTypesHaveNoHooks(t *testing.T) {
	hooked := savedTypes(t)
	if !hooked["pkg/sentry/mm.vma"] {
		t.Error("pkg/sentry/mm.vma has hooks, which were not found")
	}
	for _, name := range plainTypes(t) {
		if h, ok := hooked[name]; !ok {
			t.Errorf("%s: the module has no such type", name)
		} else if h {
			t.Errorf("%s has a hook, or a field that is saved as another thing", name)
		}
	}
}

// plainTypes are the names in the table of shape.go.
func plainTypes(t *testing.T) (names []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "lay/pkg/state/shape.go.in", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || spec.Names[0].Name != "plainTypes" {
			return true
		}
		for _, e := range spec.Values[0].(*ast.CompositeLit).Elts {
			name, err := strconv.Unquote(e.(*ast.KeyValueExpr).Key.(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, name)
		}
		return false
	})
	if len(names) < 20 {
		t.Fatalf("found %d names", len(names))
	}
	return names
}

// savedTypes tells of all types of the module that are saved, by the names that they
// have then, whether they have hooks.
func savedTypes(t *testing.T) map[string]bool {
	t.Helper()
	types := make(map[string]bool)
	err := filepath.WalkDir("../../build/gvisor/pkg", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(p, "_state_autogen.go") || strings.Contains(p, "_32bit_") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), p, nil, 0)
		if err != nil {
			return err
		}
		addSaved(types, f)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return types
}

// addSaved adds the types of a generated file. Without hooks of its own a type has
// generated ones that are empty, and saves and loads its fields alone.
func addSaved(types map[string]bool, f *ast.File) {
	named := make(map[string]string) // by the type's name
	empty := make(map[string]int)
	hooked := make(map[string]bool)
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Recv == nil {
			continue
		}
		recv := fn.Recv.List[0].Type
		if star, ok := recv.(*ast.StarExpr); ok {
			recv = star.X
		}
		id, ok := recv.(*ast.Ident)
		if !ok {
			continue
		}
		switch fn.Name.Name {
		case "StateTypeName":
			named[id.Name] = firstString(fn.Body)
		case "beforeSave", "afterLoad":
			empty[id.Name]++
		case "StateSave", "StateLoad":
			hooked[id.Name] = hooked[id.Name] || calls(fn.Body, "SaveValue", "LoadValue", "AfterLoad")
		}
	}
	for typ, name := range named {
		types[name] = hooked[typ] || empty[typ] != 2
	}
}

func firstString(n ast.Node) (s string) {
	ast.Inspect(n, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && s == "" {
			s, _ = strconv.Unquote(lit.Value)
		}
		return true
	})
	return s
}

// calls reports whether one of methods is called in n.
func calls(n ast.Node, methods ...string) (found bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok && slices.Contains(methods, sel.Sel.Name) {
			found = true
		}
		return true
	})
	return found
}
