package app

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// loopbackFile, in run, has the address of the listener for the owner's browser at the last start,
// which is kept: pages that are open go on working.
const loopbackFile = "loopback"

// listenLoopback opens a listener for the browser of the machine's user, where the server is only
// theirs: it listens on the loopback interface and has no other address. See package api.
func (a *App) listenLoopback(ctx context.Context, run string) error {
	at, ok := a.tcp.Addr().(*net.TCPAddr)
	if !ok || !at.IP.IsLoopback() || a.cfg.Advertise != "" {
		return nil
	}
	path := filepath.Join(run, loopbackFile)
	text, _ := os.ReadFile(path) // at the first start there is none
	label, port, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	if !strings.HasPrefix(label, "berth-") {
		var b [8]byte
		rand.Read(b[:]) // crypto/rand.Read never fails
		label, port = "berth-"+hex.EncodeToString(b[:]), "0"
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil && port != "0" {
		l, err = lc.Listen(ctx, "tcp", "127.0.0.1:0")
	}
	if err != nil {
		a.log.Warn("no listener for this machine's browser; `berth compute open` uses HTTPS", "err", err)
		return nil
	}
	a.closers = append(a.closers, ignoreClosed(l.Close))
	_, port, err = net.SplitHostPort(l.Addr().String())
	if err != nil {
		return err
	}
	a.browser, a.loopback = l, "http://"+label+".localhost:"+port
	return os.WriteFile(path, []byte(label+" "+port+"\n"), 0o600)
}
