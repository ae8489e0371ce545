package api

import (
	"testing"
	"time"
)

func TestOpenLinksEnd(t *testing.T) {
	var l openLinks
	now := time.Now()
	ann := openLink{user: "ann", until: now.Add(linkLife)}
	late := l.add(ann, now)
	if _, ok := l.take(late, now.Add(linkLife+time.Second)); ok {
		t.Error("a link works after its minute")
	}
	if _, ok := l.take(late, now); ok {
		t.Error("a link works twice")
	}
	bob := l.add(openLink{user: "bob", until: now.Add(linkLife)}, now)
	first := l.add(ann, now)
	for i := range 2 * linksByUser {
		l.add(openLink{user: "ann", until: now.Add(linkLife + time.Duration(i+1))}, now)
	}
	if len(l.byCode) != linksByUser+1 {
		t.Errorf("%d links are kept", len(l.byCode))
	}
	if _, ok := l.take(first, now); ok {
		t.Error("the oldest of too many links is kept")
	}
	if _, ok := l.take(bob, now); !ok {
		t.Error("one user's links pushed out another's")
	}
}
