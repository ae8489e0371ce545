package store

import "testing"

// TestDirectRow: what does not fit is an error, never a zero that nobody wrote.
func TestDirectRow(t *testing.T) {
	var n int64
	var s string
	b := []byte("x")
	if err := (directRow{int64(1), "a", nil}).Scan(&n, &s, &b); err != nil || n != 1 || s != "a" || b != nil {
		t.Errorf("%d %q %q, %v", n, s, b, err)
	}
	for _, c := range []struct {
		row  directRow
		dest any
	}{
		{directRow{nil}, &n},
		{directRow{"1"}, &n},
		{directRow{nil}, &s},
		{directRow{int64(1)}, &s},
		{directRow{"a"}, &b},
		{directRow{int64(1)}, new(bool)},
	} {
		if err := c.row.Scan(c.dest); err == nil {
			t.Errorf("%v was read into a %T", c.row, c.dest)
		}
	}
	if err := (directRow{int64(1)}).Scan(&n, &s); err == nil {
		t.Error("a row was read into more than it has")
	}
}
