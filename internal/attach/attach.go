// Package attach looks after computes that are machines of somebody's own: who may connect as which
// compute, the connections that the server makes itself, and what is known of each. What goes over
// a connection is the business of package dialout.
package attach

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver/dialout"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/target"
)

const kindCompute = "computes"

// Pattern is the address where agents connect, and Join what an agent needs for that. Both are
// dialout's.
const Pattern = dialout.Pattern

// Join is what an agent needs to connect.
type Join = dialout.Join

// Uses says whether a compute is one whose machine connects by itself.
func Uses(d *store.Doc) bool {
	var v struct {
		Properties berth.ComputeProps `json:"properties"`
	}
	return json.Unmarshal(d.Body, &v) == nil && v.Properties.Driver(d.Name) == berth.ConnectionAgent
}

// Issue makes a new token for a compute and returns it; only its hash is kept. An earlier token is
// not good any more, and the next machine that connects is the compute's machine from then on.
func Issue(st *berth.ComputeState) string {
	var b [24]byte
	rand.Read(b[:]) // never fails
	token := "bertha_" + base64.RawURLEncoding.EncodeToString(b[:])
	old := berth.AttachedState{}
	if st.Attached != nil {
		old = *st.Attached
	}
	st.Attached = &berth.AttachedState{TokenHash: hashOf(token), Since: old.Since}
	return token
}

func hashOf(token string) string {
	h := sha256.Sum256([]byte(token))
	return hex.EncodeToString(h[:])
}

// opens says whether a token is the compute's.
func opens(a *berth.AttachedState, token string) bool {
	return a != nil && a.TokenHash != "" && subtle.ConstantTimeCompare([]byte(hashOf(token)), []byte(a.TokenHash)) == 1
}

// change applies f to the state of a compute, and tells of it when f says so. One that is gone is
// left alone.
func change(ctx context.Context, db *store.DB, workspace, name string, f func(d *store.Doc, st *berth.ComputeState) (say string, err error)) error {
	return db.Update(ctx, func(tx *store.Tx) error {
		d, err := tx.Get(workspace, kindCompute, name, "")
		if err != nil {
			return err
		}
		return apply(tx, d, f)
	})
}

func apply(tx *store.Tx, d *store.Doc, f func(d *store.Doc, st *berth.ComputeState) (say string, err error)) error {
	st, err := target.State(d)
	if err != nil {
		return err
	}
	say, err := f(d, &st)
	if err != nil || say == "" {
		return err
	}
	if err := store.SetState(d, st); err != nil {
		return err
	}
	state := "Disconnected"
	if st.Attached.Connected {
		state = "Connected"
	}
	data, err := json.Marshal(map[string]any{"state": state})
	if err != nil {
		return err
	}
	tx.Emit(berth.Event{Workspace: d.Workspace, Subject: "computes/" + d.Name, Type: berth.EventCompute, Reason: say, Data: data})
	return tx.Save(d)
}
