//go:build engines

package first_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestNotebook: the link of `berth compute open` shows JupyterLab in a browser, and cells of a new
// notebook submit jobs with nothing set: one with `berth run`, and the one of docs/clients.md.
func TestNotebook(t *testing.T) {
	needed(t, "chromium")
	bin := program(t)
	n := arrive(t, bin, home(t, bin), nil)
	n.types("berth compute create --type computeinstance -n mybox --size Standard_DS1_v2")
	t.Cleanup(func() { n.types("berth compute delete -n mybox --yes") })
	link := strings.TrimSpace(n.types("berth compute open mybox"))
	page := browse(t)
	page.opens(link)
	page.clicks(`.jp-LauncherCard[data-category="Notebook"]`)
	n.says("JupyterLab")
	page.sees(`document.querySelector('.jp-Notebook-ExecutionIndicator[data-status="idle"]') !== null`)
	cell := func(i int, code string) string {
		t.Helper()
		editor := fmt.Sprintf(`.jp-Cell[data-windowed-list-index="%d"] .cm-content`, i)
		this := fmt.Sprintf(`document.querySelector('.jp-Cell[data-windowed-list-index="%d"]')`, i)
		prompt := this + `.querySelector('.jp-InputPrompt').innerText`
		// While the kernel connects, the page may drop what was typed, and what was to be run.
		ran := `/^\[\d+\]:$/.test(` + prompt + `)`
		for try := 1; ; try++ {
			if try > 10 {
				t.Fatalf("cell %d is never run", i+1)
			}
			page.clicks(editor)
			if empty := this + `.querySelector('.cm-content').innerText.trim() == ""`; page.script(empty) == true {
				page.types(code)
				if !page.within(3*time.Second, "!("+empty+")") { // what was typed is there at once, or dropped
					n.says("what was typed into cell %d was dropped, once more", i+1)
					continue
				}
			}
			page.shiftEnter()
			if !page.soon(prompt + ` == "[*]:" || ` + ran) {
				n.says("cell %d was not taken, once more", i+1)
				continue
			}
			page.sees(prompt + ` != "[*]:"`)
			if page.soon(ran) {
				break
			}
			n.says("cell %d was dropped, once more", i+1)
		}
		out, _ := page.script(fmt.Sprintf(`[...%s.querySelectorAll('.jp-OutputArea-output')].map(e => e.innerText).join("\n")`, this)).(string)
		n.says("[%d] %s\n%s", i+1, code, out)
		return out
	}
	out := cell(0, "!berth run --no-code -- echo from a cell")
	if !regexp.MustCompile(`(?m)^from a cell *$(?s:.*)^✓ \S+ completed in`).MatchString(out) {
		t.Error("the cell does not show what the job printed and that it completed")
	}
	cell(1, "%pip install -q azure-ai-ml==1.35.2 azure-identity==1.27.0")
	cell(2, docsCell(t))
	n.sees(cell(3, "print('it is', client.jobs.get(job.name).status == 'Completed')\n!berth logs {job.name}"), "it is True\n", "\nhello")
}

// says logs what happened, and when.
func (n *newcomer) says(format string, args ...any) {
	n.t.Logf("%.1f s  "+format, append([]any{time.Since(n.began).Seconds()}, args...)...)
}

// docsCell is the cell of docs/clients.md that submits a job.
func docsCell(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/clients.md")
	if err != nil {
		t.Fatal(err)
	}
	for part := range strings.SplitSeq(string(page), "```python\n") {
		if code, _, ok := strings.Cut(part, "\n```"); ok && strings.Contains(code, "MLClient(Default") {
			return code
		}
	}
	t.Fatal("docs/clients.md has no cell that submits a job")
	return ""
}
