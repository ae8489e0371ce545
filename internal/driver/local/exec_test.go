//go:build linux

package local_test

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/drivertest"
)

func TestExec(t *testing.T) {
	ctx := limited(t)
	d, dir := open(t)
	l := berth.Launch{
		Task: "t.1", Job: "job", Command: "sleep 600", LogFile: filepath.Join(t.TempDir(), "log"), Env: map[string]string{"MINE": "x"},
	}
	h, err := d.Start(ctx, l)
	if err != nil {
		t.Fatal(err)
	}
	wait(t, "the task", func() bool {
		all, err := d.Observe(ctx)
		return err == nil && len(all) == 1 && all[0].State == berth.TaskRunning
	})
	var out bytes.Buffer
	code, err := d.Exec(ctx, h, driver.Command{
		Args: []string{"sh", "-c", "pwd; echo $MINE $AZUREML_RUN_ID; cat; exit 4"}, Stdin: strings.NewReader("input\n"), Stdout: &out,
	})
	want := filepath.Join(dir, "tasks", "t.1", "wd") + "\nx job\ninput\n"
	if err != nil || code != 4 || out.String() != want {
		t.Errorf("code %d, %v, output %q, want %q", code, err, out.String(), want)
	}

	out.Reset()
	code, err = d.Exec(ctx, h, driver.Command{
		Args: []string{"sh", "-c", "test -t 0 && stty size"}, Stdout: &out, Terminal: true, Size: driver.WindowSize{Rows: 7, Columns: 33},
	})
	if err != nil || code != 0 || strings.TrimSpace(out.String()) != "7 33" {
		t.Errorf("code %d, %v, output %q", code, err, out.String())
	}

	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if _, err := d.Exec(short, h, driver.Command{Args: []string{"sleep", "600"}}); err == nil {
		t.Error("it was not ended")
	}
	if _, err := d.Exec(ctx, h, driver.Command{Args: []string{"no-such-program"}}); berth.CodeOf(err) != berth.NotFound {
		t.Errorf("%v", err)
	}
	if err := d.Stop(ctx, h, driver.Stop{Grace: time.Second}); err != nil {
		t.Fatal(err)
	}
	drivertest.Wait(ctx, t, d, l.Task)
	if _, err := d.Exec(ctx, h, driver.Command{Args: []string{"true"}}); berth.CodeOf(err) != berth.Conflict {
		t.Errorf("%v", err)
	}
}
