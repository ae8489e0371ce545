package runner_test

import (
	"strings"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner"
)

func p(s string) *string { return &s }

var values = map[string]*string{
	"inputs.a": p("1"), "inputs.path": p("/data/x y"), "inputs.g.m": p("member"), "inputs.none": nil, "inputs.empty": p(""),
	"outputs.o": p("/out"), "inputs.tricky": p("${{inputs.a}} $[[ ]] $(rm -rf /)"),
}

func TestExpand(t *testing.T) {
	for _, tt := range []struct {
		name, in, want string
		lenient        bool
		err            string // part of the message
	}{
		{name: "nothing", in: "echo hi", want: "echo hi"},
		{name: "value", in: "x ${{inputs.a}} y", want: "x 1 y"},
		{name: "blanks", in: "${{  inputs.a }}", want: "1"},
		{name: "twice", in: "${{inputs.a}}${{inputs.a}}", want: "11"},
		{name: "output", in: "cp a ${{outputs.o}}/b", want: "cp a /out/b"},
		{name: "group", in: "${{inputs.g.m}}", want: "member"},
		{name: "verbatim", in: "${{inputs.path}}", want: "/data/x y"},
		{name: "values are not expanded again", in: "${{inputs.tricky}}", want: "${{inputs.a}} $[[ ]] $(rm -rf /)"},
		{name: "empty value is a value", in: "a $[[--e=${{inputs.empty}}]]", want: "a --e="},
		{name: "optional kept", in: "a $[[--x ${{inputs.a}}]] b", want: "a --x 1 b"},
		{name: "optional dropped", in: "a $[[--x ${{inputs.none}}]] b", want: "a  b"},
		{name: "optional dropped when one is missing", in: "$[[${{inputs.a}} ${{inputs.none}}]]", want: ""},
		{name: "optional unknown dropped", in: "a$[[ --x ${{inputs.nope}}]]", want: "a"},
		{name: "optional without names kept", in: "$[[plain]]", want: "plain"},
		{name: "several optional", in: "$[[a]]$[[${{inputs.none}}]]$[[b]]", want: "ab"},
		{name: "shell is left alone", in: "echo ${HOME} $x $(date) [[ -f a ]]", want: "echo ${HOME} $x $(date) [[ -f a ]]"},
		{name: "unbound input", in: "${{inputs.nope}}", err: `no input "nope"`},
		{name: "unbound output", in: "${{outputs.nope}}", err: `no output "nope"`},
		{name: "no value", in: "${{inputs.none}}", err: "between $[[ and ]]"},
		{name: "other kinds", in: "${{parent.inputs.x}}", err: "inputs and outputs"},
		{name: "unclosed", in: "echo ${{inputs.a", err: "never closes"},
		{name: "optional unclosed", in: "echo $[[ ${{inputs.a}}", err: "never closes"},
		{name: "lenient other kinds", in: "${{ secrets.x }} ${{inputs.a}}", lenient: true, want: "${{ secrets.x }} 1"},
		{name: "lenient unclosed", in: "a ${{inputs.a", lenient: true, want: "a ${{inputs.a"},
		{name: "lenient optional unclosed", in: "a $[[ ${{inputs.a}}", lenient: true, want: "a $[[ 1"},
		{name: "lenient unbound", in: "${{inputs.nope}}", lenient: true, err: `no input "nope"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := runner.Expand(tt.in, values, tt.lenient)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) || berth.CodeOf(err) != berth.Invalid {
					t.Fatalf("got %q, %v; want an error with %q", got, err, tt.err)
				}
				return
			}
			if err != nil || got != tt.want {
				t.Errorf("got %q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

func FuzzExpand(f *testing.F) {
	for _, s := range []string{"", "${{inputs.a}}", "$[[ ${{inputs.none}} ]]", "${{", "$[[", "]]}}", "${{inputs.a}}$[[${{inputs.a}}]]"} {
		f.Add(s, false)
		f.Add(s, true)
	}
	f.Fuzz(func(t *testing.T, text string, lenient bool) {
		got, err := runner.Expand(text, values, lenient)
		if err != nil {
			if berth.CodeOf(err) != berth.Invalid {
				t.Errorf("%v", err)
			}
			return
		}
		if !strings.Contains(text, "${{") && !strings.Contains(text, "$[[") && got != text {
			t.Errorf("%q became %q", text, got)
		}
		if !lenient && strings.Contains(got, "${{") && !strings.Contains(text, "inputs.tricky") {
			// What was not resolved must have been refused, unless the pieces of an expression met
			// where a part was dropped.
			if !strings.Contains(text, "$[[") {
				t.Errorf("%q became %q", text, got)
			}
		}
	})
}

func TestPlain(t *testing.T) {
	for in, want := range map[string]string{
		"/bin/true":                     "/bin/true",
		" python  train.py --lr=0.1 ":   "python|train.py|--lr=0.1",
		"python -m pkg.mod a:b,c@d%e+f": "python|-m|pkg.mod|a:b,c@d%e+f",
	} {
		got, ok := runner.Plain(in)
		if !ok || strings.Join(got, "|") != want {
			t.Errorf("%q: %q, %v; want %q", in, got, ok, want)
		}
	}
	for _, in := range []string{
		"", "  ", "echo hi", "cd x", "exit 3", "true", ". ./env", "A=1 python x", "a;b", "a && b", "a | b", "a > b", "a $x", "a `b`", "a 'b'",
		`a "b"`, "a *", "a ?", "a [b]", "a ~", "a # b", "a\nb", "a\tb", "a {b,c}", "! a", "(a)", "a &", "a \\b", "%1", "while x", "é",
	} {
		if got, ok := runner.Plain(in); ok {
			t.Errorf("%q needs a shell, got %q", in, got)
		}
	}
}

func TestParseGPUs(t *testing.T) {
	got := runner.ParseGPU("0, 35, 1024\n1, [N/A], 0\nnonsense\n")
	if len(got) != 2 {
		t.Fatalf("%+v", got)
	}
}

// TestExpandBomb: values that make a command longer than the system takes are refused before they
// fill the memory.
func TestExpandBomb(t *testing.T) {
	value := strings.Repeat("x", 100_000)
	lookup := map[string]*string{"inputs.a": &value}
	for _, text := range []string{strings.Repeat("${{inputs.a}}", 5000), strings.Repeat("$[[ ${{inputs.a}} ]]", 5000)} {
		got, err := runner.Expand(text, lookup, false)
		if berth.CodeOf(err) != berth.Invalid || !strings.Contains(err.Error(), "longer than 127 KiB") {
			t.Errorf("%d bytes, %v", len(got), err)
		}
	}
	if got, err := runner.Expand("${{inputs.a}}", lookup, false); err != nil || got != value {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}
