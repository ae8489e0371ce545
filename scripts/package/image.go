package main

import (
	"encoding/json"
	"errors"
	"os"
	"time"
)

// account is the user of the image.
const account = 65532

// rootCertificates are those of the machine that builds the release, an input of the images beside
// the programs.
func rootCertificates() ([]byte, error) {
	for _, path := range []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"} {
		if b, err := os.ReadFile(path); err == nil {
			return b, nil
		}
	}
	return nil, errors.New("this machine has no root certificates for the container images: install its package ca-certificates")
}

// makeImage is a container image as an OCI layout, which Docker loads too: the program, root
// certificates and an account, nothing else.
func makeImage(version string, t target, binary, roots []byte) ([]byte, error) {
	layer, err := tarOf([]entry{
		{name: "etc/", mode: 0o755},
		{name: "etc/passwd", mode: 0o644, data: []byte("root:x:0:0:root:/root:/sbin/nologin\nberth:x:65532:65532:Berth:/home/berth:/sbin/nologin\n")},
		{name: "etc/group", mode: 0o644, data: []byte("root:x:0:\nberth:x:65532:\n")},
		{name: "etc/ssl/", mode: 0o755},
		{name: "etc/ssl/certs/", mode: 0o755},
		{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, data: roots},
		{name: "home/", mode: 0o755},
		{name: "home/berth/", mode: 0o700, uid: account},
		{name: "tmp/", mode: 0o1777},
		{name: "usr/", mode: 0o755},
		{name: "usr/bin/", mode: 0o755},
		{name: "usr/bin/berth", mode: 0o755, data: binary},
		{name: "var/", mode: 0o755},
		{name: "var/lib/", mode: 0o755},
		{name: "var/lib/berth/", mode: 0o700, uid: account},
	})
	if err != nil {
		return nil, err
	}
	packed, err := gz(layer)
	if err != nil {
		return nil, err
	}
	blobs := map[string][]byte{}
	var order []string
	keep := func(data []byte) string {
		d := digest(data)
		if blobs[d] == nil {
			blobs[d] = data
			order = append(order, d)
		}
		return d
	}
	type object = map[string]any
	var failed error
	document := func(v any) []byte {
		b, err := json.Marshal(v)
		if err != nil {
			failed = err
		}
		return b
	}
	config := document(object{
		"created": epoch.Format(time.RFC3339), "architecture": t.arch, "os": "linux",
		"config": object{
			"User": "65532:65532", "Entrypoint": []string{"/usr/bin/berth"}, "Cmd": []string{"serve", "--home", "/var/lib/berth", "--listen", "0.0.0.0:8443"},
			"Env": []string{"PATH=/usr/bin", "HOME=/home/berth", "BERTH_HOME=/var/lib/berth"}, "WorkingDir": "/var/lib/berth",
			"Volumes": object{"/var/lib/berth": object{}}, "ExposedPorts": object{"8443/tcp": object{}},
			"Labels": object{"org.opencontainers.image.version": version, "org.opencontainers.image.title": "berth", "org.opencontainers.image.licenses": "Apache-2.0"},
		},
		"rootfs":  object{"type": "layers", "diff_ids": []string{"sha256:" + digest(layer)}},
		"history": []object{{"created": epoch.Format(time.RFC3339), "created_by": "berth dist"}},
	})
	descriptor := func(kind string, data []byte) object {
		return object{"mediaType": kind, "digest": "sha256:" + keep(data), "size": len(data)}
	}
	manifest := document(object{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": descriptor("application/vnd.oci.image.config.v1+json", config),
		"layers": []object{descriptor("application/vnd.oci.image.layer.v1.tar+gzip", packed)},
	})
	top := descriptor("application/vnd.oci.image.manifest.v1+json", manifest)
	top["platform"] = object{"architecture": t.arch, "os": "linux"}
	top["annotations"] = object{"org.opencontainers.image.ref.name": imageTag(version), "io.containerd.image.name": "docker.io/library/berth:" + imageTag(version)}
	index := document(object{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": []object{top}})
	docker := document([]object{{ // for versions of Docker that do not load the layout
		"Config": "blobs/sha256/" + digest(config), "RepoTags": []string{"berth:" + imageTag(version)}, "Layers": []string{"blobs/sha256/" + digest(packed)},
	}})
	if failed != nil {
		return nil, failed
	}
	entries := []entry{
		{name: "oci-layout", mode: 0o644, data: []byte(`{"imageLayoutVersion":"1.0.0"}`)},
		{name: "index.json", mode: 0o644, data: index},
		{name: "manifest.json", mode: 0o644, data: docker},
		{name: "blobs/", mode: 0o755},
		{name: "blobs/sha256/", mode: 0o755},
	}
	for _, d := range order {
		entries = append(entries, entry{name: "blobs/sha256/" + d, mode: 0o644, data: blobs[d]})
	}
	return tarOf(entries)
}
