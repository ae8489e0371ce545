package api

import (
	"context"
	"path"
)

// StorageFull returns an error if a workspace, given by its key, has no room left once more bytes
// are stored. It is for writes at the blob endpoint.
func (s *Server) StorageFull(ctx context.Context, workspace string, more int64) error {
	room, err := s.quota.Room(ctx, workspace)
	if err != nil {
		return err
	}
	room.Used += more
	return room.Full(path.Base(workspace))
}
