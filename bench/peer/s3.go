package peer

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/bench/measure"
	"github.com/berthml/berth/internal/storage"
)

// S3Version is the release of versitygw that is the store.
const S3Version = "v1.8.0"

// S3 is a server of S3 whose bucket "data" is a folder.
type S3 struct {
	URL, Folder string
	d           daemons
}

const (
	s3Key    = "benchkey"
	s3Secret = "bench-secret" //nolint:gosec // of a server that is gone afterwards
)

// StartS3 installs versitygw into cache where it is missing, and starts it in dir.
func StartS3(ctx context.Context, group *measure.Group, cache, dir string) (*S3, error) {
	into := filepath.Join(cache, "versitygw@"+S3Version)
	program := filepath.Join(into, "versitygw")
	if _, err := os.Stat(program); err != nil {
		cmd := exec.CommandContext(ctx, "go", "install", "github.com/versity/versitygw/cmd/versitygw@"+S3Version)
		cmd.Dir = os.TempDir()
		cmd.Env = append(os.Environ(), "GOBIN="+into, "CGO_ENABLED=0", "GOFLAGS=")
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("installing versitygw: %w: %s", err, out)
		}
	}
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	s := &S3{URL: "http://" + address, Folder: filepath.Join(dir, "root", "data"), d: daemons{logs: dir, group: group}}
	if err := os.MkdirAll(s.Folder, 0o755); err != nil {
		return nil, err
	}
	if _, err := s.d.start(ctx, program, "--quiet", "--access", s3Key, "--secret", s3Secret, "--port", address, "posix", filepath.Dir(s.Folder)); err != nil {
		return nil, err
	}
	err = s.d.wait(ctx, "versitygw", func(ctx context.Context) bool {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	if err != nil {
		s.Stop()
	}
	return s, err
}

// Stop ends the server.
func (s *S3) Stop() { s.d.stopAll() }

// Datastore is the YAML file of a datastore for the bucket.
func (s *S3) Datastore(name string) string {
	return "type: s3\nname: " + name + "\nbucket: data\nendpoint: " + s.URL + "\ncredentials:\n  access_key_id: " + s3Key + "\n  secret_access_key: " + s3Secret + "\n"
}

// Get is the address of a GET of a file, signed.
func (s *S3) Get(name string) (string, error) {
	store, err := storage.Read(map[string]any{"datastoreType": "S3", "bucket": "data", "endpoint": s.URL})
	if err != nil {
		return "", err
	}
	key, err := store.Open(map[string]any{"credentialsType": "AccessKey", "accessKeyId": s3Key}, map[string]any{"secretAccessKey": s3Secret})
	if err != nil {
		return "", err
	}
	return key.Sign(name, berth.OutsideRequest{Do: berth.OutsideGet}, time.Now(), time.Now().Add(time.Hour))
}
