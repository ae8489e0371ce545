package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// release is where release files are.
const release = "https://github.com/berthml/berth/releases/download/v%s/%s"

// makeFormula is a formula of Homebrew, with the hashes of the binaries.
func makeFormula(dist, version string) ([]byte, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "class Berth < Formula\n  desc \"Open compute plane for machine learning\"\n  homepage \"https://github.com/berthml/berth\"\n  version %q\n  license \"Apache-2.0\"\n", version)
	for _, system := range []struct{ brew, os string }{{"macos", "darwin"}, {"linux", "linux"}} {
		fmt.Fprintf(&b, "\n  on_%s do\n", system.brew)
		for _, cpu := range []struct{ brew, arch string }{{"arm", "arm64"}, {"intel", "amd64"}} {
			path := target{os: system.os, arch: cpu.arch}.binary(dist)
			data, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(&b, "    on_%s do\n      url %q\n      sha256 %q\n    end\n", cpu.brew, fmt.Sprintf(release, version, filepath.Base(path)), digest(data))
		}
		b.WriteString("  end\n")
	}
	b.WriteString("\n  def install\n    bin.install Dir[\"berth-*\"].first => \"berth\"\n  end\n\n  test do\n    assert_match version.to_s, shell_output(\"#{bin}/berth version\")\n  end\nend\n")
	return []byte(b.String()), nil
}

// makeChart is a Helm chart as Helm packs it.
func makeChart(dir, version string) ([]byte, error) {
	var entries []entry
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if rel == "Chart.yaml" {
			data = bytes.ReplaceAll(data, []byte("appVersion: dev"), []byte("appVersion: \""+imageTag(version)+"\""))
			data = bytes.ReplaceAll(data, []byte("version: 0.0.0"), []byte("version: "+chartVersion(version)))
		}
		entries = append(entries, entry{name: "berth/" + filepath.ToSlash(rel), mode: 0o644, data: data})
		return nil
	})
	if err != nil {
		return nil, err
	}
	return tarGz(entries)
}
