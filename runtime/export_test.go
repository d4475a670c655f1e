package runtime

// Leases counts the addresses that are taken.
func (s *Supervisor) Leases() (int, error) {
	all, err := s.addresses.leases.All()
	return len(all), err
}
