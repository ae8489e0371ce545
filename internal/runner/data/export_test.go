package data

import "time"

// Shrink makes a client treat files as large that are not, and wait shortly.
func (c *Client) Shrink(whole, piece int64, pause time.Duration) {
	c.whole, c.piece, c.pause = whole, piece, pause
}
