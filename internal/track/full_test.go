package track

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestFullDiskIsLoggedOnce: that the disk is full is in the log once a minute, however many
// requests are refused for it, and what else is wrong each time.
func TestFullDiskIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := New(Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
		r := httptest.NewRequest("POST", "http://h/api", nil)
		said := func(err error) (n int) {
			log.Reset()
			for range 100 {
				s.report("tracking", r, err)
			}
			return strings.Count(log.String(), "level=ERROR")
		}
		full := fmt.Errorf("append: %w", syscall.ENOSPC)
		if n := said(full); n != 1 {
			t.Errorf("%d lines say that the disk is full", n)
		}
		if n := said(errors.New("other")); n != 100 {
			t.Errorf("%d lines say what else is wrong", n)
		}
		time.Sleep(time.Minute)
		if n := said(full); n != 1 {
			t.Errorf("after a minute %d lines say that the disk is full", n)
		}
	})
}
