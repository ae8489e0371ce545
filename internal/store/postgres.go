package store

import (
	"context"

	"github.com/berthml/berth"
)

func openPostgres(ctx context.Context, url string, o Options) (*DB, error) {
	return nil, berth.Errorf(berth.Unsupported, "not yet")
}
