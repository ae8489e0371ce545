package locate

import (
	"context"

	"github.com/berthml/berth/internal/store"
)

// Workspace returns the key of the workspace that a container belongs to, "" where there is none.
func (o *Owners) Workspace(ctx context.Context, container string) (key string, err error) {
	o.mu.Lock()
	key, ok := o.workspaces[container]
	o.mu.Unlock()
	if ok {
		return key, nil
	}
	err = o.DB.View(ctx, func(tx *store.Tx) (err error) {
		key, err = o.workspace(tx, container)
		return err
	})
	return key, err
}
