package mltable

import "io"

// QuotedEnds is what text is read through.
func QuotedEnds(r io.Reader, delimiter rune) io.Reader { return newQuotedEnds(r, delimiter) }
