package store

// DeleteTasks removes the tasks of a job and its mini-batches; none is success.
func (tx *Tx) DeleteTasks(workspace, job string) error {
	scope, err := tx.scope(workspace, "")
	if err != nil || scope == 0 {
		return err
	}
	tx.next()
	tx.memory.dropTasks(jobKey{scope, job})
	if _, err = tx.exec("DELETE FROM tasks WHERE scope = ? AND job = ?", scope, job); err != nil {
		return err
	}
	return tx.DeleteWork(workspace, job)
}

// DeleteBlobs removes the names with a prefix from the index and returns their number. Their
// content is left to garbage collection.
func (tx *Tx) DeleteBlobs(container, prefix string) (int, error) {
	total := 0
	for {
		blobs, err := tx.ListBlobs(BlobQuery{Container: container, Prefix: prefix, Limit: 500})
		if err != nil || len(blobs) == 0 {
			return total, err
		}
		for _, b := range blobs {
			if err := tx.DeleteBlob(b.Container, b.Name); err != nil {
				return total, err
			}
			total++
		}
	}
}

// DeleteWorkspace removes every document, task and mini-batch inside a workspace. Events stay: they
// are history.
func (tx *Tx) DeleteWorkspace(workspace string) error {
	tx.next()
	tx.memory.clear()
	clear(tx.derived)
	for _, table := range []string{"docs", "tasks", "batches", "works"} {
		if _, err := tx.exec("DELETE FROM "+table+" WHERE scope IN (SELECT id FROM scopes WHERE workspace = ?)", workspace); err != nil {
			return err
		}
	}
	return nil
}
