package store

// Range returns at most limit values in the order of keys, starting with the first key
// that is not less than from. It reads no others, so that a large bucket can be read in
// parts.
func (b *Bucket[T]) Range(from string, limit int) (vs []T, err error) {
	err = b.read(func(s *txBucket) error {
		vals := s.values()
		if vals == nil {
			return nil
		}
		c := vals.Cursor()
		for k, raw := c.Seek([]byte(from)); k != nil && len(vs) < limit; k, raw = c.Next() {
			v, err := b.decode(string(k), raw)
			if err != nil {
				return err
			}
			vs = append(vs, v)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return vs, nil
}

// Keys returns the keys that start with prefix, in order. It reads no values.
func (b *Bucket[T]) Keys(prefix string) (keys []string, err error) {
	err = b.read(func(s *txBucket) error {
		return s.each(s.values(), []byte(prefix), func(k, _ []byte) error {
			keys = append(keys, string(k))
			return nil
		})
	})
	return keys, err
}
