package auth

import (
	"strings"

	"github.com/berthml/berth/internal/store"
)

// ObjectID is the id by which Azure's clients know a user: a stable GUID.
func ObjectID(user string) string { return objectID(user) }

// FindUser is the user with this name or object id, among those who have a token.
func FindUser(tx *store.Tx, id string) (user string, ok bool, err error) {
	docs, err := tx.All(store.Query{Kind: kindTokens})
	if err != nil {
		return "", false, err
	}
	for _, d := range docs {
		t, err := decode(d)
		if err != nil {
			return "", false, err
		}
		if strings.EqualFold(t.User, id) || strings.EqualFold(objectID(t.User), id) {
			return t.User, true, nil
		}
	}
	return "", false, nil
}
