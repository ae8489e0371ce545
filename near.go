package berth

import "strings"

// Nearest is the word that one most likely stands for, "" when there is none: at most a third of
// its letters are wrong, missing or too many, whatever their case.
func Nearest(word string, words []string) (best string) {
	least := max(1, len(word)/3) + 1
	for _, w := range words {
		if d := Distance(strings.ToLower(word), strings.ToLower(w)); d < least {
			best, least = w, d
		}
	}
	return best
}

// Distance is how many letters have to be put in, taken out or changed to make b of a.
func Distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		left, corner := i+1, row[0]
		row[0] = left
		for j := range len(b) {
			d := corner
			if a[i] != b[j] {
				d = 1 + min(corner, left, row[j+1])
			}
			corner, row[j+1], left = row[j+1], d, d
		}
	}
	return row[len(b)]
}
