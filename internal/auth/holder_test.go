package auth_test

import (
	"cmp"
	"path/filepath"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/store"
)

// TestHolders: what was made for a token ends with it, what was made for a user with the user's
// last.
func TestHolders(t *testing.T) {
	a, _ := open(t)
	now := time.Now()
	check := func(holder string, good bool) {
		t.Helper()
		if err := a.CheckHolder(t.Context(), holder, now); (err == nil) != good || err != nil && berth.CodeOf(err) != berth.Unauthenticated {
			t.Errorf("%q: %v", holder, err)
		}
	}
	var holders []string
	for _, tok := range []auth.Token{{Name: "one", User: "ann"}, {Name: "two", User: "ann", Expires: now.Add(-time.Hour)}} {
		secret, err := a.Create(t.Context(), tok)
		if err != nil {
			t.Fatal(err)
		}
		p, err := a.Check(t.Context(), secret, now.Add(-2*time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		holders = append(holders, p.Holder())
	}
	check("", true) // the local socket's owner
	check("other thing", false)
	check(holders[0], true)
	check(holders[1], false) // expired
	check(auth.UserHolder("ann"), true)
	check(auth.UserHolder("bob"), false)
	for i, name := range []string{"one", "two"} {
		if err := a.Revoke(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		check(holders[0], false)
		check(auth.UserHolder("ann"), i == 0)
	}
}

// TestTaskHolders: what was made for a task ends with the task, and with the tokens of its user.
func TestTaskHolders(t *testing.T) {
	db, err := store.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "db"), store.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	keys, err := auth.LoadKeys(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	a := auth.NewAuthority(keys, db)
	now := time.Now()
	if _, err := a.Create(t.Context(), auth.Token{Name: "one", User: "ann"}); err != nil {
		t.Fatal(err)
	}
	tasks := []*berth.Task{{ID: "w a.1", Workspace: "w", Job: "a", User: "ann"}, {ID: "w b.1", Workspace: "w", Job: "b", User: "ann"}, {ID: "w c.1", Workspace: "w", Job: "c", User: "bob"}, {ID: "w d.1", Workspace: "w", Job: "d"}}
	update := func(fn func(tx *store.Tx) error) {
		t.Helper()
		if err := db.Update(t.Context(), fn); err != nil {
			t.Fatal(err)
		}
	}
	update(func(tx *store.Tx) (err error) {
		for _, x := range tasks {
			task := *x
			task.State = berth.TaskRunning
			err = cmp.Or(err, tx.InsertTask(&task))
		}
		return err
	})
	check := func(id berth.TaskID, good bool) {
		t.Helper()
		if err := a.CheckHolder(t.Context(), auth.TaskHolder(id), now); (err == nil) != good || err != nil && berth.CodeOf(err) != berth.Unauthenticated {
			t.Errorf("%q: %v", id, err)
		}
	}
	check(tasks[0].ID, true)
	check(tasks[1].ID, true)
	check(tasks[2].ID, false) // bob has no token
	check(tasks[3].ID, true)  // nobody's
	check("none", false)
	update(func(tx *store.Tx) error {
		x, err := tx.Task(tasks[0].ID)
		if err != nil {
			return err
		}
		x.State = berth.TaskDone
		return tx.SaveTask(x)
	})
	check(tasks[0].ID, false) // at once
	check(tasks[1].ID, true)
	if err := a.Revoke(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	check(tasks[1].ID, false)
}

// TestCheckWriter: tokens that only read, or have expired, do not let others act for their user.
func TestCheckWriter(t *testing.T) {
	a, _ := open(t)
	now := time.Now()
	for _, tok := range []auth.Token{
		{Name: "reads", User: "rita", Role: auth.Reader},
		{Name: "old", User: "olaf", Role: auth.User, Expires: now.Add(-time.Minute)},
		{Name: "writes", User: "will", Role: auth.User, Expires: now.Add(time.Minute)},
	} {
		if _, err := a.Create(t.Context(), tok); err != nil {
			t.Fatal(err)
		}
	}
	for user, good := range map[string]bool{"rita": false, "olaf": false, "nobody": false, "will": true} {
		if err := a.CheckWriter(t.Context(), user, now); (err == nil) != good || err != nil && berth.CodeOf(err) != berth.Unauthenticated {
			t.Errorf("%s: %v", user, err)
		}
	}
}
