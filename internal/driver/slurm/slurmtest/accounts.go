package slurmtest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Accounts is a line for Start: what became of jobs is kept by slurmdbd in a MariaDB of its own.
const Accounts = "#accounts"

// accounts replaces Accounts by what it means.
func (c *Cluster) accounts(lines []string) ([]string, error) {
	i := slices.Index(lines, Accounts)
	if i < 0 {
		return lines, nil
	}
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	who, err := user.Current()
	if err != nil {
		return nil, err
	}
	c.dbd, c.db = fmt.Sprint(ports[0]), fmt.Sprint(ports[1])
	m := filepath.Join(c.dir, "munge")
	conf := []string{
		"AuthType=auth/munge", "AuthInfo=socket=" + m + "/sock", "DbdHost=localhost", "DbdAddr=127.0.0.1", "DbdPort=" + c.dbd, "SlurmUser=" + who.Username,
		"StorageType=accounting_storage/mysql", "StorageHost=127.0.0.1", "StoragePort=" + c.db, "StorageUser=slurm", "StoragePass=slurm", "StorageLoc=slurm", "PidFile=" + c.dir + "/slurmdbd.pid",
	}
	if c.rest != "" {
		conf = append(conf, "AuthAltTypes=auth/jwt", "AuthAltParameters=jwt_key="+c.jwtKey())
	}
	err = os.WriteFile(filepath.Join(c.dir, "slurmdbd.conf"), []byte(strings.Join(conf, "\n")+"\n"), 0o600)
	lines = slices.DeleteFunc(slices.Delete(lines, i, i+1), func(l string) bool { return strings.HasPrefix(l, "AccountingStorageType=") })
	return append(lines, "AccountingStorageType=accounting_storage/slurmdbd", "AccountingStorageHost=127.0.0.1", "AccountingStoragePort="+c.dbd,
		"AccountingStoragePass="+m+"/sock"), err
}

// Accounting starts the database and slurmdbd.
func (c *Cluster) Accounting(t testing.TB) {
	t.Helper()
	who, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	data, socket := filepath.Join(c.dir, "accounts"), filepath.Join(c.dir, "accounts.sock")
	out, err := exec.CommandContext(t.Context(), "mariadb-install-db", "--no-defaults", "--user="+who.Username, "--datadir="+data,
		"--auth-root-authentication-method=normal", "--skip-test-db").CombinedOutput()
	if err != nil {
		t.Fatalf("mariadb-install-db: %v: %s", err, out)
	}
	c.run(t, "mariadbd", "--no-defaults", "--user="+who.Username, "--datadir="+data, "--socket="+socket, "--bind-address=127.0.0.1", "--port="+c.db, "--pid-file="+c.dir+"/mariadbd.pid",
		"--innodb-buffer-pool-size=64M", "--innodb-lock-wait-timeout=900", "--innodb-flush-log-at-trx-commit=0")
	c.until(t, "the database", func() bool {
		_, err := c.limited("mariadb", "--no-defaults", "--user=root", "--socket="+socket,
			"--execute=create database if not exists slurm; create or replace user slurm@'127.0.0.1' identified by 'slurm'; create or replace user slurm@localhost identified by 'slurm'; "+
				"grant all on slurm.* to slurm@'127.0.0.1'; grant all on slurm.* to slurm@localhost")
		return err == nil
	})
	c.run(t, "slurmdbd", "-D")
	c.until(t, "slurmdbd", func() bool {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", "127.0.0.1:"+c.dbd)
		return errors.Join(err, closeConn(conn)) == nil
	})
}

func closeConn(c net.Conn) error {
	if c == nil {
		return nil
	}
	return c.Close()
}
