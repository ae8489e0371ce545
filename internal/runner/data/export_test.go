package data

import (
	"net/http"
	"time"
)

// Shrink makes a client treat files as large that are not, and wait shortly.
func (c *Client) Shrink(whole, piece int64, pause time.Duration) {
	c.whole, c.piece, c.pause = whole, piece, pause
}

// ShrinkPage bounds pages of lists to so many bytes.
func (c *Client) ShrinkPage(n int64) { c.page = n }

// Armed says whether a transport of Trust has read the system's roots.
func Armed(tr http.RoundTripper) bool { return tr.(*trusting).all != nil }

// Stall gives requests up after so long without a byte.
func (c *Client) Stall(after time.Duration) { c.stalled = after }
