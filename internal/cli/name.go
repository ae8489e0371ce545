package cli

import (
	"crypto/rand"
	"strings"
)

const (
	adjectives = "amiable amusing boring brave bright busy calm careful cheerful clever cool coral crisp cyan dreamy eager elated epic " +
		"fluffy frank frosty funny gentle gifted good great green happy helpful honest hungry icy ivory jolly keen khaki kind lemon " +
		"lively loving lucid lucky maroon mellow modest neat nice nifty olive patient placid plucky polite proud purple quiet quirky " +
		"red salmon serene sharp shy silver sincere sleepy sleek smart strong sunny tender tidy upbeat vivid willing wise witty zen"
	things = "anchor angle apple arch atom bag basil bean beach bell bird boat bread bridge brush camera candle carrot cartoon cherry " +
		"cloud coconut coast comet crayon cup deer dog drum eagle engine feather fig flag flower fork forest garden grape guitar hat " +
		"heron hill island jackal jelly kettle kite lamp leaf lemon lime lizard lock map melon moon music napkin nest net night oak " +
		"onion orange owl panda parcel peach pear pen pepper piano plum pocket pot queen quill rabbit rain rhubarb river road roof " +
		"sail salt school seed shirt shoe snail soccer spoon spring squash star station stone sugar table tail tent tiger town train " +
		"tree turnip vase vine wall water wave window wolf yacht yak yam"
	letters = "0123456789bcdfghjklmnpqrstvwxyz"
)

// newName invents the name of a job, as Azure's clients do: witty_town_1hdt2v82y7.
func newName() string {
	var b [12]byte
	rand.Read(b[:]) // crypto/rand.Read never fails
	a, t := strings.Fields(adjectives), strings.Fields(things)
	tail := make([]byte, 10)
	for i := range tail {
		tail[i] = letters[int(b[i+2])%len(letters)]
	}
	return a[int(b[0])%len(a)] + "_" + t[int(b[1])%len(t)] + "_" + string(tail)
}
