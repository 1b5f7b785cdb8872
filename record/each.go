package record

import "context"

// Each calls f for every entry of s whose key starts with prefix and sorts after the key
// "after" ("" means from the first), in key order, until f fails. It reads page by page,
// so what others write meanwhile may be seen or not.
func Each(ctx context.Context, s Store, prefix, after string, f func(Entry) error) error {
	for {
		page, err := s.List(ctx, prefix, after, 0)
		if err != nil {
			return err
		}
		for _, e := range page {
			if err := f(e); err != nil {
				return err
			}
			after = e.Key
		}
		if len(page) < MaxPage {
			return nil
		}
	}
}
