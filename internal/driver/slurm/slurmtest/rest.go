package slurmtest

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Rest is a line for Start: slurmrestd can be started, and takes tokens.
const Rest = "#rest"

// tokens replaces Rest by what it means.
func (c *Cluster) tokens(lines []string) ([]string, error) {
	i := slices.Index(lines, Rest)
	if i < 0 {
		return lines, nil
	}
	ports, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	c.rest = fmt.Sprint("127.0.0.1:", ports[0])
	key := make([]byte, 32)
	rand.Read(key) // never fails
	err = os.WriteFile(c.jwtKey(), key, 0o600)
	return append(slices.Delete(lines, i, i+1), "AuthAltTypes=auth/jwt", "AuthAltParameters=jwt_key="+c.jwtKey()), err
}

func (c *Cluster) jwtKey() string { return filepath.Join(c.dir, "jwt.key") }

// Slurmrestd starts slurmrestd, and says where it is. It ends as "slurmrestd".
func (c *Cluster) Slurmrestd(t testing.TB) (address string) {
	t.Helper()
	api := "openapi/v0.0.38"
	if c.dbd != "" {
		api += ",openapi/dbv0.0.38"
	}
	c.runAs(t, "slurmrestd", "env", "SLURM_CONF="+c.Conf, "SLURM_JWT=daemon", "SLURMRESTD_SECURITY=disable_user_check",
		"slurmrestd", "-a", "rest_auth/jwt", "-s", api, c.rest)
	c.until(t, "slurmrestd", func() bool {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", c.rest)
		return errors.Join(err, closeConn(conn)) == nil
	})
	return "http://" + c.rest
}

// Token makes a token that is good for so many seconds.
func (c *Cluster) Token(t testing.TB, seconds int) string {
	t.Helper()
	out, err := c.limited("scontrol", "token", fmt.Sprint("lifespan=", seconds))
	_, token, ok := strings.Cut(strings.TrimSpace(string(out)), "=")
	if err != nil || !ok {
		t.Fatalf("scontrol token: %v: %s", err, out)
	}
	return token
}
