package data

import (
	"context"
	"os"

	"github.com/berthml/berth"
)

// PutObject sends a file to a name below the place. Its errors do not say where that is.
func (o *Outside) PutObject(ctx context.Context, f *os.File, name string) error {
	return o.put(ctx, f, name, o.one(berth.OutsideRequest{Do: berth.OutsidePut, Name: name}))
}

// FetchObject brings the file of a name below the place to a path. Its errors do not say where that
// is.
func (o *Outside) FetchObject(ctx context.Context, name, path string) error {
	x, err := o.head(ctx, name)
	if err != nil {
		return err
	}
	return o.c.fetchTo(ctx, o.one(berth.OutsideRequest{Do: berth.OutsideGet, Name: name}), version{tag: strong(x.Tag)}, path, x.Size)
}
