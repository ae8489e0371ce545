//go:build engines

package first_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience is how long a person waits for what must come. A test that is too slow is not wrong; one
// that waits for what never comes has to end.
const patience = 5 * time.Minute

// needed is the path of a program; without it the test is skipped, or fails where the program is
// required.
func needed(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if strings.Contains(os.Getenv("BERTH_REQUIRE_ENGINES"), name) {
			t.Fatalf("%s is required (BERTH_REQUIRE_ENGINES): %v", name, err)
		}
		t.Skip(err)
	}
	return path
}

// chromium is a browser without a screen, with one page. It is driven by the DevTools protocol over
// a pair of pipes: JSON messages that end with a zero byte.
type chromium struct {
	t       *testing.T
	to      io.Writer
	session string

	mu      sync.Mutex
	last    int
	answers map[int]chan answer
	ended   chan struct{}
}

type answer struct {
	ID     int
	Result json.RawMessage
	Error  *struct{ Message string }
}

// browse starts a browser of its own for the test.
func browse(t *testing.T) *chromium {
	t.Helper()
	theirsIn, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, theirsOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(needed(t, "chromium"), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage",
		"--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1400,1000",
		"--user-data-dir="+t.TempDir(), "--remote-debugging-pipe")
	cmd.ExtraFiles = []*os.File{theirsIn, theirsOut} // 3 and 4, which the flag means
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirsIn.Close()
	theirsOut.Close()
	c := &chromium{t: t, to: in, answers: map[int]chan answer{}, ended: make(chan struct{})}
	t.Cleanup(func() {
		c.call("Browser.close", nil, nil)
		in.Close()
		_ = cmd.Wait() // it was told to end
		<-c.ended
		out.Close()
	})
	go c.listen(out)
	var page struct{ TargetID string }
	c.call("Target.createTarget", map[string]any{"url": "about:blank"}, &page)
	var session struct{ SessionID string }
	c.call("Target.attachToTarget", map[string]any{"targetId": page.TargetID, "flatten": true}, &session)
	c.session = session.SessionID
	return c
}

// listen hands answers to those who wait for them, and drops events.
func (c *chromium) listen(out io.Reader) {
	defer close(c.ended)
	r := bufio.NewReader(out)
	for {
		message, err := r.ReadBytes(0)
		if err != nil {
			return
		}
		var a answer
		if json.Unmarshal(message[:len(message)-1], &a) != nil || a.ID == 0 {
			continue
		}
		c.mu.Lock()
		to := c.answers[a.ID]
		delete(c.answers, a.ID)
		c.mu.Unlock()
		to <- a
	}
}

// call calls a method of the protocol, of the page once there is one.
func (c *chromium) call(method string, params, result any) {
	c.t.Helper()
	ch := make(chan answer, 1)
	c.mu.Lock()
	c.last++
	id := c.last
	c.answers[id] = ch
	c.mu.Unlock()
	message := map[string]any{"id": id, "method": method}
	if params != nil {
		message["params"] = params
	}
	if c.session != "" && !strings.HasPrefix(method, "Browser.") {
		message["sessionId"] = c.session
	}
	b, err := json.Marshal(message)
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.to.Write(append(b, 0)); err != nil {
		c.t.Fatal(err)
	}
	select {
	case a := <-ch:
		if a.Error != nil {
			c.t.Fatalf("%s: %s", method, a.Error.Message)
		}
		if result != nil {
			if err := json.Unmarshal(a.Result, result); err != nil {
				c.t.Fatalf("%s: %v", method, err)
			}
		}
	case <-c.ended:
		if method != "Browser.close" {
			c.t.Fatalf("%s: the browser ended", method)
		}
	case <-time.After(patience):
		c.t.Fatalf("%s: no answer", method)
	}
}

// script evaluates JavaScript in the page. A page that is being replaced has no value.
func (c *chromium) script(expression string) any {
	c.t.Helper()
	var v struct {
		Result           struct{ Value any }
		ExceptionDetails *struct{ Text string }
	}
	c.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true}, &v)
	if v.ExceptionDetails != nil {
		return nil
	}
	return v.Result.Value
}

// opens goes to an address, as by a link.
func (c *chromium) opens(address string) {
	c.t.Helper()
	c.call("Page.navigate", map[string]any{"url": address}, nil)
}

// sees waits until an expression has a value that is true, and returns it.
func (c *chromium) sees(expression string) any {
	c.t.Helper()
	for limit := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		switch v := c.script(expression).(type) {
		case nil:
		case bool:
			if v {
				return v
			}
		case string:
			if v != "" {
				return v
			}
		default:
			return v
		}
		if time.Now().After(limit) {
			c.t.Fatalf("the page does not show %s; it is %v with\n%v", expression, c.script("location.href"), c.script("document.body.innerText"))
		}
	}
}

// soon reports whether an expression is true within some seconds.
func (c *chromium) soon(expression string) bool {
	c.t.Helper()
	return c.within(20*time.Second, expression)
}

// within reports whether an expression becomes true in a time.
func (c *chromium) within(span time.Duration, expression string) bool {
	c.t.Helper()
	for limit := time.Now().Add(span); time.Now().Before(limit); time.Sleep(100 * time.Millisecond) {
		if c.script(expression) == true {
			return true
		}
	}
	return false
}

// clicks presses the mouse in the middle of the element that a selector finds.
func (c *chromium) clicks(selector string) {
	c.t.Helper()
	element := fmt.Sprintf("document.querySelector(%q)", selector)
	c.sees(element + " !== null")
	c.script(element + ".scrollIntoView({block: 'nearest'})")
	at, ok := c.sees(fmt.Sprintf("(() => { const r = %s.getBoundingClientRect(); return [r.x + r.width / 2, r.y + Math.min(r.height / 2, 20)] })()", element)).([]any)
	if !ok || len(at) != 2 {
		c.t.Fatalf("%s is nowhere: %v", selector, at)
	}
	for _, event := range []string{"mousePressed", "mouseReleased"} {
		c.call("Input.dispatchMouseEvent", map[string]any{"type": event, "x": at[0], "y": at[1], "button": "left", "clickCount": 1}, nil)
	}
}

// types enters text where the cursor is.
func (c *chromium) types(text string) {
	c.t.Helper()
	c.call("Input.insertText", map[string]any{"text": text}, nil)
}

// shiftEnter presses Shift+Enter, which runs a cell.
func (c *chromium) shiftEnter() {
	c.t.Helper()
	for _, event := range []string{"keyDown", "keyUp"} {
		c.call("Input.dispatchKeyEvent", map[string]any{"type": event, "modifiers": 8, "key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13}, nil)
	}
}
