// Command figures reads the output of `go test -bench` and writes the figures of
// docs/performance.md and their plot. It keeps the newest figures of each benchmark, so a
// run of one of them changes only its rows.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const usage = "usage: go test -bench … | figures -commit COMMIT FOLDER"

func main() {
	commit := flag.String("commit", "", "the measured commit")
	flag.Parse()
	if *commit == "" || flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	if err := update(flag.Arg(0), *commit, time.Now().UTC().Format(time.DateOnly), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "figures: "+err.Error())
		os.Exit(1)
	}
}

// update copies the output of the benchmarks to out, and adds its results to the files in
// the folder: performance.json, performance.md and performance.svg.
func update(folder, commit, date string, in io.Reader, out io.Writer) error {
	measured, bad := parse(io.TeeReader(in, out))
	if len(measured) == 0 {
		return errors.Join(bad, errors.New("no benchmark of the table has measured anything, so nothing is written"))
	}
	store := filepath.Join(folder, "performance.json")
	all, err := load(store)
	if err != nil {
		return err
	}
	for _, m := range measured {
		m.Commit, m.Date = commit, date
		all = slices.DeleteFunc(all, func(old result) bool { return old.Benchmark == m.Benchmark })
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b result) int { return strings.Compare(a.Benchmark, b.Benchmark) })
	b, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		return err
	}
	page := filepath.Join(folder, "performance.md")
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	lines := linesOf(all)
	replaced, err := replaceFigures(string(text), tables(lines, all))
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", page, err)
	}
	for file, data := range map[string][]byte{
		store: append(b, '\n'), page: []byte(replaced), filepath.Join(folder, "performance.svg"): []byte(plot(lines)),
	} {
		bad = errors.Join(bad, os.WriteFile(file, data, 0o644)) //nolint:forbidigo // not state of dewd
	}
	return bad
}

func load(file string) ([]result, error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []result
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", file, err)
	}
	return all, nil
}
