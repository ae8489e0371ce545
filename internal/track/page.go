package track

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
)

// sendPage answers with a page of what was found, under a name. add writes one thing as clients see
// it: those that read slowly do not keep whole answers in the server's memory.
func sendPage[T any](c *call, s *search, name string, found []T, add func(out *listWriter, x T) error) (any, error) {
	found, next := page(found, s.from, s.limit, s.query)
	out := c.listWriter(name)
	for _, x := range found {
		if err := add(out, x); err != nil {
			return nil, err
		}
	}
	more := map[string]string{}
	if next != "" {
		more["next_page_token"] = next
	}
	return nil, out.end(more)
}

// A pageToken says where the next page begins, and of which question.
type pageToken struct {
	Offset *int   `json:"offset"`
	Query  string `json:"query,omitempty"`
}

// queryOf is a mark of a question, so that a token is not taken for another's.
func queryOf(parts ...any) string {
	h := sha256.Sum256(fmt.Appendf(nil, "%q", parts))
	return base64.RawURLEncoding.EncodeToString(h[:9])
}

// offset reads a page token.
func offset(token, query string) (int, error) {
	if token == "" {
		return 0, nil
	}
	b, err := base64.StdEncoding.DecodeString(token)
	if err != nil {
		return 0, invalid("Invalid page token, could not base64-decode")
	}
	var t pageToken
	if err := json.Unmarshal(b, &t); err != nil {
		return 0, invalid("Invalid page token, decoded value=%q", b)
	}
	if t.Offset == nil || *t.Offset < 0 {
		return 0, invalid("Invalid page token, parsed value=%s", b)
	}
	if t.Query != "" && t.Query != query {
		return 0, invalid("Invalid page token: it was issued for another query")
	}
	return *t.Offset, nil
}

// page is what a page has of things, and the token of the next, empty when there is none.
func page[T any](things []T, from, limit int, query string) ([]T, string) {
	if from >= len(things) {
		return nil, ""
	}
	things = things[from:]
	if len(things) <= limit {
		return things, ""
	}
	return things[:limit], tokenOf(from+limit, query)
}

// tokenOf is the token of a page.
func tokenOf(from int, query string) string {
	b, err := json.Marshal(pageToken{&from, query})
	if err != nil {
		return ""
	}
	return base64.StdEncoding.EncodeToString(b)
}

// paged is an answer with a list under a name, and a token where there is more.
func paged[T any](name string, things []T, token string) map[string]any {
	m := map[string]any{}
	if len(things) > 0 {
		m[name] = things
	}
	if token != "" {
		m["next_page_token"] = token
	}
	return m
}
