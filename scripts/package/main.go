// Command package makes release files of the binaries that scripts/dist.sh has built: Debian
// packages, container images, Python wheels, a Helm chart, a compose file and a Homebrew formula.
// It needs nothing but the binaries and the root certificates of the machine that it runs on, which
// go into the images, and makes the same bytes of the same ones.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// epoch is the time of every file in a package.
var epoch = time.Unix(1577836800, 0).UTC()

// A target is a system that binaries are built for, and what others call it.
type target struct {
	os, arch string
	deb      string // architecture of a Debian package; "" makes none
	wheel    string // platform of a wheel
}

var targets = []target{
	{"linux", "amd64", "amd64", "manylinux_2_17_x86_64.manylinux2014_x86_64.musllinux_1_1_x86_64"},
	{"linux", "arm64", "arm64", "manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64"},
	{"darwin", "amd64", "", "macosx_11_0_x86_64"},
	{"darwin", "arm64", "", "macosx_11_0_arm64"},
	{"windows", "amd64", "", "win_amd64"},
}

func (t target) binary(dist string) string {
	name := "berth-" + t.os + "-" + t.arch
	if t.os == "windows" {
		name += ".exe"
	}
	return filepath.Join(dist, name)
}

func main() {
	dist := flag.String("dist", "dist", "folder with the binaries, where the files go")
	described := flag.String("version", "", "version, as git describe gives it")
	flag.Parse()
	if err := run(*dist, *described); err != nil {
		fmt.Fprintln(os.Stderr, "package:", err)
		os.Exit(1)
	}
}

func run(dist, described string) error {
	version := normal(described)
	roots, err := rootCertificates()
	if err != nil {
		return err
	}
	pages, err := manPages(filepath.Join(dist, "man", "man1"))
	if err != nil {
		return err
	}
	archive, err := manArchive(pages)
	if err != nil {
		return err
	}
	if err := write(dist, "berth-"+version+"-man.tar.gz", archive); err != nil {
		return err
	}
	for _, t := range targets {
		binary, err := os.ReadFile(t.binary(dist))
		if err != nil {
			return err
		}
		wheel, err := makeWheel(version, t, binary)
		if err != nil {
			return err
		}
		if err := write(dist, wheelName(version, t), wheel); err != nil {
			return err
		}
		if t.os != "linux" {
			continue
		}
		deb, err := makeDeb(version, t, binary, pages)
		if err != nil {
			return err
		}
		if err := write(dist, fmt.Sprintf("berth_%s_%s.deb", version, t.deb), deb); err != nil {
			return err
		}
		image, err := makeImage(version, t, binary, roots)
		if err != nil {
			return err
		}
		if err := write(dist, fmt.Sprintf("berth-%s-image-%s.tar", version, t.arch), image); err != nil {
			return err
		}
	}
	return deployFiles(dist, version, "deploy")
}

// manPages reads the manual pages that scripts/dist.sh has made.
func manPages(dir string) (map[string][]byte, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	pages := map[string][]byte{}
	for _, e := range entries {
		if pages[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			return nil, err
		}
	}
	if len(pages) == 0 {
		return nil, fmt.Errorf("%s has no manual pages", dir)
	}
	return pages, nil
}

// manArchive is the manual pages for systems without a package.
func manArchive(pages map[string][]byte) ([]byte, error) {
	files := []entry{{name: "man1/", mode: 0o755}}
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		files = append(files, entry{name: "man1/" + name, mode: 0o644, data: pages[name]})
	}
	return tarGz(files)
}

// deployFiles writes what has no binary in it.
func deployFiles(dist, version, deploy string) error {
	formula, err := makeFormula(dist, version)
	if err != nil {
		return err
	}
	if err := write(dist, "berth.rb", formula); err != nil {
		return err
	}
	chart, err := makeChart(filepath.Join(deploy, "helm", "berth"), version)
	if err != nil {
		return err
	}
	if err := write(dist, "berth-"+chartVersion(version)+".tgz", chart); err != nil {
		return err
	}
	compose, err := os.ReadFile(filepath.Join(deploy, "compose.yaml"))
	if err != nil {
		return err
	}
	return write(dist, "compose.yaml", bytes.ReplaceAll(compose, []byte("VERSION"), []byte(imageTag(version))))
}

func write(dist, name string, data []byte) error {
	fmt.Printf("%s\t%d bytes\n", filepath.Join(dist, name), len(data))
	return os.WriteFile(filepath.Join(dist, name), data, 0o644) //nolint:gosec // for everybody
}

var describedForm = regexp.MustCompile(`^v?(\d+(?:\.\d+)*)(?:-(\d+)-g([0-9a-f]+))?(-dirty)?$`)

// normal is a version that Python, Debian and others sort as meant: 1.2, or 1.2.post3+gabc three
// commits after it.
func normal(described string) string {
	m := describedForm.FindStringSubmatch(described)
	if m == nil {
		local := strings.Trim(regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower(described), "."), ".")
		if local == "" {
			return "0.0.0"
		}
		return "0.0.0+" + local
	}
	version, local := m[1], ""
	if m[2] != "" {
		version += ".post" + m[2]
		local = "g" + m[3]
	}
	if m[4] != "" {
		local = strings.TrimPrefix(local+".dirty", ".")
	}
	if local != "" {
		version += "+" + local
	}
	return version
}

func imageTag(version string) string { return strings.ReplaceAll(version, "+", "-") }

// chartVersion is a version as Helm demands it: three numbers.
func chartVersion(version string) string {
	public, local, _ := strings.Cut(version, "+")
	public, post, _ := strings.Cut(public, ".post")
	for strings.Count(public, ".") < 2 {
		public += ".0"
	}
	if post != "" {
		local = strings.Trim("post"+post+"."+local, ".")
	}
	if local != "" {
		public += "+" + local
	}
	return public
}

// An entry is a file of a package.
type entry struct {
	name string // a folder ends with /
	mode int64
	data []byte
	uid  int
}

// tarGz is entries as a compressed archive.
func tarGz(entries []entry) ([]byte, error) {
	plain, err := tarOf(entries)
	if err != nil {
		return nil, err
	}
	return gz(plain)
}

func tarOf(entries []entry) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: e.mode, Size: int64(len(e.data)), ModTime: epoch, Typeflag: tar.TypeReg, Format: tar.FormatUSTAR, Uid: e.uid, Gid: e.uid}
		if strings.HasSuffix(e.name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.data); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return b.Bytes(), err
}

func gz(data []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	err = w.Close()
	return b.Bytes(), err
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
