package host

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"syscall"

	"github.com/berthml/berth/internal/fence"
)

// begin puts up the fence around the server's secrets, if there can be one, and becomes the reaper.
// All that comes after it, the workers and their tasks, is behind it too, at no cost to a task. The
// program is executed again because the fence holds for one thread only.
func begin(dir string, argv []string, ready bool, log *slog.Logger) error {
	s, err := loadSettings(dir)
	if err != nil {
		return err
	}
	if s.Home == "" || fence.Missing(s.Home) != "" {
		return reap(dir, argv, ready, log)
	}
	more := []string{dir}
	if s.Environments != "" {
		more = append(more, s.Environments)
	}
	if s.Cache != "" {
		more = append(more, s.Cache)
	}
	if err := fence.Hide(s.Home, more...); err != nil {
		log.Error("tasks can read the secrets of the server", "err", err)
		return reap(dir, argv, ready, log)
	}
	argv = append(slices.Clone(argv), "--role", "reaper")
	if ready {
		argv = append(argv, "--ready")
	}
	return fmt.Errorf("executing itself: %w", syscall.Exec(self(), argv, os.Environ()))
}
