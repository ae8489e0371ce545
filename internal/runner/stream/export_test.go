package stream

import "context"

// Whole fetches blocks one by one.
func Whole(one func(ctx context.Context, i int, off int64, p []byte) error) Fetch {
	return func(ctx context.Context, i int, off int64, p [][]byte, came func(n int)) error {
		for n, b := range p {
			if err := one(ctx, i, off+int64(n)*block, b); err != nil {
				return err
			}
			came(n + 1)
		}
		return nil
	}
}
