package sizes

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/berthml/berth"
)

// osDiskMB is the system disk of every size of Azure's.
const osDiskMB = 1047552

// parse reads the catalogue's text, whose form its head describes. "series: NAME" begins a series:
// what follows of the form "field: value" all its sizes share, and every other line is one of them.
func parse(text string) ([]berth.Size, error) {
	var all []berth.Size
	var currency string
	var head berth.Size // what the sizes of a series share
	for i, line := range strings.Split(text, "\n") {
		if j := strings.IndexByte(line, '#'); j >= 0 {
			line = line[:j]
		}
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		var err error
		key, value, isField := strings.Cut(strings.TrimSpace(line), ":")
		value = strings.TrimSpace(value)
		switch {
		case isField && key == "currency":
			currency = value
		case isField && key == "series":
			head = berth.Size{Series: value, OSDiskMB: osDiskMB, Computes: []string{berth.TypeCluster, berth.TypeInstance}}
		case isField:
			err = field(&head, key, value)
		default:
			var s berth.Size
			if s, err = row(head, words); err == nil && (s.Price != nil || s.LowPrice != nil) {
				s.Currency = currency
			}
			all = append(all, s)
		}
		if err != nil {
			return nil, fmt.Errorf("sizes.txt:%d: %w", i+1, err)
		}
	}
	return all, nil
}

// field sets what all sizes of a series share.
func field(s *berth.Size, key, value string) error {
	switch key {
	case "family":
		s.Family = value
	case "category":
		s.Category = value
	case "gpu":
		s.GPU = value
	case "is":
		for _, w := range strings.Split(value, ",") {
			if err := mark(s, strings.TrimSpace(w)); err != nil {
				return err
			}
		}
	default:
		return fmt.Errorf("a series has no field %q", key)
	}
	return nil
}

// mark sets one property that a series or a size has or has not.
func mark(s *berth.Size, word string) error {
	switch word {
	case "restricted":
		s.Restricted = true
	case "low":
		s.LowPriority = true
	case "premium":
		s.PremiumIO = true
	case "rdma":
		s.RDMA = true
	case "isolated":
		s.Isolated = true
	case "cluster":
		s.Computes = []string{berth.TypeCluster}
	default:
		return fmt.Errorf("%q is not a mark of a size", word)
	}
	return nil
}

// row is one size: name, vCPUs, GB of memory, GB of temporary disk, GPUs, price, low-priority
// price, and marks of its own. A dash is a figure nobody knows.
func row(head berth.Size, words []string) (berth.Size, error) {
	s := head
	if len(words) < 7 {
		return s, fmt.Errorf("%s has %d columns of 7", words[0], len(words))
	}
	s.Name = words[0]
	var err error
	if s.VCPUs, err = strconv.Atoi(words[1]); err != nil {
		return s, err
	}
	if s.MemoryGB, err = strconv.ParseFloat(words[2], 64); err != nil {
		return s, err
	}
	disk, err := figure(words[3])
	if err != nil {
		return s, err
	}
	if disk != nil {
		s.TempDiskMB = int(*disk * 1024)
	}
	if s.GPUs, err = strconv.Atoi(words[4]); err != nil {
		return s, err
	}
	if s.Price, err = figure(words[5]); err != nil {
		return s, err
	}
	if s.LowPrice, err = figure(words[6]); err != nil {
		return s, err
	}
	for _, w := range words[7:] {
		if err := mark(&s, w); err != nil {
			return s, err
		}
	}
	return s, nil
}

// figure is a number, nil for a dash.
func figure(word string) (*float64, error) {
	if word == "-" {
		return nil, nil
	}
	f, err := strconv.ParseFloat(word, 64)
	return &f, err
}
