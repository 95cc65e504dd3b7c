// harvest copies the packages of kube-scheduler's plug-ins, tests included, into a module, and puts package record between
// the tests and the plug-ins: `p.Filter(ctx, state, pod, node)` becomes `record.Filter(p, ctx, state, pod, node)`, and
// each loop over a table begins with `record.Row("TestName", row)`. Running the tests then writes their cases.
//
//	harvest FROM INTO PACKAGE...
//
// FROM is the folder of the plug-ins in the Go module cache, INTO that of the copies.
package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const recordPath = "moorage.dev/tools/cluster/plane/harvest/record"

// recorder is the name of package record in rewritten files; no test has such a one.
const recorder = "harvestrecord"

// recorded: methods of plug-ins, with how many arguments they have.
var recorded = map[string]int{"PreFilter": 4, "Filter": 4, "PreScore": 4, "Score": 4, "NormalizeScore": 4}

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "harvest FROM INTO PACKAGE...")
		os.Exit(2)
	}
	for _, name := range os.Args[3:] {
		if err := copyPackage(filepath.Join(os.Args[1], name), filepath.Join(os.Args[2], name)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func copyPackage(from, into string) error {
	if err := os.MkdirAll(into, 0o755); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(from, "*.go"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("%s: no Go files; is this the folder of kube-scheduler's plug-ins?", from)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err == nil && strings.HasSuffix(path, "_test.go") {
			text, err = rewritten(path, text)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(into, filepath.Base(path)), text, 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// rewritten returns the text of a test file in which calls of plug-ins are recorded.
func rewritten(path string, text []byte) ([]byte, error) {
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, path, text, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	found := false
	for _, declared := range parsed.Decls {
		function, is := declared.(*ast.FuncDecl)
		if !is || function.Recv != nil || !strings.HasPrefix(strings.ToLower(function.Name.Name), "test") {
			continue
		}
		found = rewriteTest(function) || found
	}
	if !found {
		return text, nil
	}
	imported(parsed)
	// Comments keep places that no longer are: they are left out of the copy, but for the licence above the package.
	var kept []*ast.CommentGroup
	for _, group := range parsed.Comments {
		if group.End() < parsed.Package {
			kept = append(kept, group)
		}
	}
	parsed.Comments = kept
	var out bytes.Buffer
	if err := format.Node(&out, files, parsed); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func rewriteTest(function *ast.FuncDecl) bool {
	found := false
	ast.Inspect(function, func(node ast.Node) bool {
		if loop, is := node.(*ast.RangeStmt); is && rewriteLoop(function.Name.Name, loop) {
			found = true
		}
		return true
	})
	return found
}

// rewriteLoop rewrites a loop over the rows of a table: one whose body has a closure for a subtest or calls a plug-in,
// and that has a variable for the row.
func rewriteLoop(test string, loop *ast.RangeStmt) bool {
	row, is := loop.Value.(*ast.Ident)
	if !is || !isTable(loop.X) {
		return false
	}
	found := false
	ast.Inspect(loop.Body, func(node ast.Node) bool {
		if call, is := node.(*ast.CallExpr); is {
			found = rewriteCall(call) || found
		}
		return true
	})
	if found {
		begin := &ast.CallExpr{
			Fun:  selected("Row"),
			Args: []ast.Expr{&ast.BasicLit{Kind: token.STRING, Value: strconv.Quote(test)}, ast.NewIdent(row.Name)},
		}
		loop.Body.List = append([]ast.Stmt{&ast.ExprStmt{X: begin}}, loop.Body.List...)
	}
	return found
}

// isTable: a table is a variable whose name says so.
func isTable(over ast.Expr) bool {
	name, is := over.(*ast.Ident)
	return is && (strings.Contains(strings.ToLower(name.Name), "test") || name.Name == "table")
}

func rewriteCall(call *ast.CallExpr) bool {
	method, is := call.Fun.(*ast.SelectorExpr)
	if !is {
		return false
	}
	if arguments, known := recorded[method.Sel.Name]; !known || arguments != len(call.Args) {
		return false
	}
	if of, is := method.X.(*ast.Ident); is && of.Name == recorder {
		return false
	}
	call.Args = append([]ast.Expr{method.X}, call.Args...)
	call.Fun = selected(method.Sel.Name)
	return true
}

func selected(name string) ast.Expr {
	return &ast.SelectorExpr{X: ast.NewIdent(recorder), Sel: ast.NewIdent(name)}
}

func imported(file *ast.File) {
	added := &ast.ImportSpec{
		Name: ast.NewIdent(recorder),
		Path: &ast.BasicLit{Kind: token.STRING, Value: strconv.Quote(recordPath)},
	}
	for _, declared := range file.Decls {
		if imports, is := declared.(*ast.GenDecl); is && imports.Tok == token.IMPORT {
			imports.Specs = append(imports.Specs, added)
			return
		}
	}
}
