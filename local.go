package berth

// LocalTerms is on which terms jobs run on the machine itself, the compute local. The zero value
// lets everybody, for nothing.
type LocalTerms struct {
	Off      bool    // no jobs run there
	PerUser  int     // jobs of one user at once; 0 is no limit
	Price    float64 // an hour of the machine; a job pays for its slot
	Currency string  // of Price
	Slots    int     // jobs at once
}

// Size is the machine as a size with a price, nil when it costs nothing.
func (l LocalTerms) Size() *Size {
	if l.Price <= 0 {
		return nil
	}
	return &Size{Name: LocalCompute, Price: &l.Price, LowPrice: &l.Price, Currency: l.Currency}
}

// Meter is the machine as a node that costs; ok is false when it costs nothing.
func (l LocalTerms) Meter() (m Meter, ok bool) {
	return Meter{
		Compute: LocalCompute, Node: LocalCompute, Size: LocalCompute, Rate: l.Price, Priced: true, Currency: l.Currency,
		Slots: max(1, l.Slots),
	}, l.Price > 0
}
