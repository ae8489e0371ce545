package cli_test

import (
	"testing"

	"github.com/berthml/berth/internal/cli"
)

// TestShown: what a job writes reaches a terminal without commanding it, in whatever pieces it
// comes.
func TestShown(t *testing.T) {
	for in, want := range map[string]string{
		"plain é 漢\tx\r\n":                  "plain é 漢\tx\r\n",
		"\x1b[1;31mred\x1b[0m":              "\x1b[1;31mred\x1b[0m",
		"50%\r\x1b[K51%":                    "50%\r\x1b[K51%",
		"\x1b]0;title\a":                    `\x1b]0;title\a`,
		"\x1b]52;c;ZXZpbA==\x1b\\":          `\x1b]52;c;ZXZpbA==\x1b\`,
		"\x1b[2J\x1b[H":                     `\x1b[2J\x1b[H`,
		"\x1b[5A":                           `\x1b[5A`,
		"\x1bc\x1bP+q\x1b\\":                `\x1bc\x1bP+q\x1b\`,
		"\u009b2J":                          `\u009b2J`,
		"\x9b2J":                            `\x9b2J`,
		"\a\b\v\f\x00\x7f":                  `\a\b\v\f\x00\x7f`,
		"ends in \x1b[3":                    `ends in \x1b[3`,
		"ends in \xe6\xbc":                  `ends in \xe6\xbc`,
		"\x1b[\x1b]0;t\a":                   `\x1b[\x1b]0;t\a`,
		"\x1b[31\n2Jm":                      `\x1b[31` + "\n2Jm",
		"\x1b[?1049h":                       `\x1b[?1049h`,
		"\x1b[6n":                           `\x1b[6n`,
		"\xff\xfe":                          `\xff\xfe`,
		"\x1b[38;2;1;2;3mtrue\x1b[m":        "\x1b[38;2;1;2;3mtrue\x1b[m",
		"\x1b[31" + string(make([]byte, 1)): `\x1b[31\x00`,
	} {
		if got := cli.Shown(true, in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
		var pieces []string
		for i := range len(in) {
			pieces = append(pieces, in[i:i+1])
		}
		if got := cli.Shown(true, pieces...); got != want {
			t.Errorf("%q byte by byte: %q, want %q", in, got, want)
		}
	}
	if got := cli.Shown(false, "\x1b[31mred"); got != `\x1b[31mred` {
		t.Errorf("without colours: %q", got)
	}
}
