package group

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFailureLine finds what went wrong at the end of the output of programs.
func TestFailureLine(t *testing.T) {
	for _, tt := range []struct{ name, tail, want string }{
		{"nothing", "epoch 1\nepoch 2 error 0.3\n", ""},
		{"empty", "", ""},
		{"python", "start\nTraceback (most recent call last):\n  File \"a.py\", line 1, in <module>\n    f()\nValueError: must be positive\nand not -1\n", "ValueError: must be positive"},
		{
			"python, of two", "Traceback (most recent call last):\n  File \"a.py\"\nKeyError: 'a'\n\nDuring handling of the above exception, another exception occurred:\n\n" +
				"Traceback (most recent call last):\n  File \"b.py\"\nmine.Trouble: no data\nwandb: finished\n", "mine.Trouble: no data",
		},
		{"python, syntax", "  File \"a.py\", line 1\n    def\n       ^\nSyntaxError: invalid syntax\n", "SyntaxError: invalid syntax"},
		{"python, cut off", "Traceback (most recent call last):\n  File \"a.py\"\n", ""},
		{"shell", "sh: 1: nvidia-smi: not found\n", "sh: 1: nvidia-smi: not found"},
		{"R", "Error in log(-1) : \n  NaNs produced\nExecution halted\n", "Error in log(-1) : NaNs produced"},
		{"Julia", "ERROR: LoadError: DomainError with -1.0\nStacktrace:\n [1] top-level\n", "ERROR: LoadError: DomainError with -1.0"},
		{"compiler", "a.c: In function 'main':\na.c:3:5: error: 'x' undeclared\n", "a.c:3:5: error: 'x' undeclared"},
		{"the first error of a compiler", "a.c: In function 'main':\na.c:1:13: error: 'retrun' undeclared\na.c:1:19: error: expected ';'\nmake: *** [Makefile:2: all] Error 1\n", "a.c:1:13: error: 'retrun' undeclared"},
		{"make", "make: *** No rule to make target 'nothing'.  Stop.\n", "make: *** No rule to make target 'nothing'.  Stop."},
		{"Go", "panic: runtime error: index out of range\n\ngoroutine 1 [running]:\nmain.main()\n\t/a.go:3\nexit status 2\n", "panic: runtime error: index out of range"},
		{
			"python, group", "  + Exception Group Traceback (most recent call last):\n  |   File \"a.py\", line 1, in <module>\n  |     raise x\n  | ExceptionGroup: many (2 sub-exceptions)\n" +
				"  +-+---------------- 1 ----------------\n    | Traceback (most recent call last):\n    |   File \"a.py\", line 2\n    | ValueError: a\n    +---------------- 2 ----------------\n    | TypeError: b\n    +------------------------------------\n",
			"ExceptionGroup: many (2 sub-exceptions): ValueError: a",
		},
		{"python, group alone", "  + Exception Group Traceback (most recent call last):\n  | ExceptionGroup: many (1 sub-exception)\n", "ExceptionGroup: many (1 sub-exception)"},
		{"bash", "/bin/bash: line 12: nosuch: command not found\n", "nosuch: command not found"},
		{"bar and escapes", "10%\r20%\rTraceback (most recent call last)\n10%\r\x1b[31mRuntimeError: \x00bad\x1b[0m\xff\r\n", "RuntimeError: bad\uFFFD"},
	} {
		if got := failureLine(tt.tail); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	for _, tt := range []struct {
		name, tail string
		code       int
		want       string
	}{
		{"sys.exit", "start\nno data for 2024\n\n", 1, "its last line was: no data for 2024"},
		{"sys.exit after a warning", "warning: slow\nepoch 1 error 0.3\nno data", 1, "its last line was: no data"},
		{"a bar", "10%\r20%\rno data\n", 1, "its last line was: no data"},
		{"another code", "no data\n", 2, ""},
		{"nothing", "\n \n", 1, ""},
		{"our own line", "x\nberth: 2 files were not uploaded\n", 1, ""},
		{"a traceback", "Traceback (most recent call last):\n  File \"a.py\"\nKeyError: 'a'\nwandb: finished\n", 1, "KeyError: 'a'"},
		{"R's stop", "Error: no data for 2024\nExecution halted\n", 1, "Error: no data for 2024"},
	} {
		path := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(path, []byte(tt.tail), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := LastError(path, tt.code); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	if got := failureLine("Error: " + strings.Repeat("é", 1000)); len([]rune(got)) != failureLen+1 {
		t.Errorf("%d characters", len([]rune(got)))
	}
}
