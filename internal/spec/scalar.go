package spec

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// The plain scalars of YAML 1.1, as PyYAML resolves them: 1e3 is text, 010 is eight, 12:30 is 750,
// on is true.
var (
	boolWord  = re(`^(?:yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF)$`)
	nullWord  = re(`^(?:~|null|Null|NULL|)$`)
	floatForm = re(`^(?:[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$`)
	intForm   = re(`^(?:[-+]?0b[0-1_]+|[-+]?0[0-7_]+|[-+]?(?:0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+|[-+]?[1-9][0-9_]*(?::[0-5]?[0-9])+)$`)
	dateForm  = re(`^(?:[0-9]{4}-[0-9]{2}-[0-9]{2}|[0-9]{4}-[0-9][0-9]?-[0-9][0-9]?(?:[Tt]|[ \t]+)[0-9][0-9]?:[0-9]{2}:[0-9]{2}(?:\.[0-9]*)?(?:[ \t]*(?:Z|[-+][0-9][0-9]?(?::[0-9]{2})?))?)$`)
)

// resolve gives a plain scalar its shape.
func resolve(v *value, text string) {
	v.shape, v.text = str, text
	if text == "" {
		v.shape = null
		return
	}
	switch c := text[0]; {
	case c >= '0' && c <= '9', c == '-', c == '+', c == '.':
		switch {
		case intForm.MatchString(text):
			if n, ok := parseInt(text); ok {
				v.shape, v.num = integer, n
			}
		case floatForm.MatchString(text):
			if f, ok := parseFloat(text); ok {
				v.shape, v.real = float, f
			}
		case dateForm.MatchString(text):
			v.shape = date
		}
	case nullWord.MatchString(text):
		v.shape = null
	case boolWord.MatchString(text):
		v.shape, v.yes = boolean, truth.get()[strings.ToLower(text)]
	}
}

// truth maps the words for true and false, lower-cased.
var truth = lazy[map[string]bool]{make: func() map[string]bool {
	return map[string]bool{
		"true": true, "yes": true, "on": true, "y": true, "t": true, "1": true,
		"false": false, "no": false, "off": false, "n": false, "f": false, "0": false,
	}
}}

func parseInt(text string) (*big.Int, bool) {
	s := strings.ReplaceAll(text, "_", "")
	neg := strings.HasPrefix(s, "-")
	s = strings.TrimLeft(s, "+-")
	n := new(big.Int)
	var ok bool
	switch {
	case s == "0":
		ok = true
	case strings.HasPrefix(s, "0b"):
		_, ok = n.SetString(s[2:], 2)
	case strings.HasPrefix(s, "0x"):
		_, ok = n.SetString(s[2:], 16)
	case strings.HasPrefix(s, "0"):
		_, ok = n.SetString(s, 8)
	case strings.Contains(s, ":"):
		ok = true
		for _, part := range strings.Split(s, ":") {
			d, good := new(big.Int).SetString(part, 10)
			if !good {
				return nil, false
			}
			n.Mul(n, big.NewInt(60)).Add(n, d)
		}
	default:
		_, ok = n.SetString(s, 10)
	}
	if neg {
		n.Neg(n)
	}
	return n, ok
}

func parseFloat(text string) (float64, bool) {
	s := strings.ToLower(strings.ReplaceAll(text, "_", ""))
	sign := 1.0
	if strings.HasPrefix(s, "-") {
		sign = -1
	}
	s = strings.TrimLeft(s, "+-")
	switch {
	case s == ".inf":
		return sign * math.Inf(1), true
	case s == ".nan":
		return math.NaN(), true
	case strings.Contains(s, ":"):
		total := 0.0
		for _, part := range strings.Split(s, ":") {
			f, err := strconv.ParseFloat(part, 64)
			if err != nil {
				return 0, false
			}
			total = total*60 + f
		}
		return sign * total, true
	}
	f, err := strconv.ParseFloat(s, 64)
	return sign * f, err == nil
}

// tagged gives a scalar the shape its explicit tag asks for.
func tagged(v *value, tag, text string) error {
	plain := &value{}
	resolve(plain, text)
	switch tag {
	case "!!str":
		v.shape, v.text = str, text
		return nil
	case "!!null":
		v.shape = null
		return nil
	case "!!bool":
		b, ok := truth.get()[strings.ToLower(text)]
		if ok && len(text) > 1 {
			v.shape, v.yes = boolean, b
			return nil
		}
	case "!!int":
		if n, ok := parseInt(text); ok {
			v.shape, v.num = integer, n
			return nil
		}
	case "!!float":
		if f, ok := parseFloat(text); ok {
			v.shape, v.real = float, f
			return nil
		}
	case "!!timestamp":
		if plain.shape == date {
			v.shape, v.text = date, text
			return nil
		}
	default:
		return fmt.Errorf("tag %s is not supported; use only YAML's standard types", tag)
	}
	return fmt.Errorf("%q is not a %s", text, strings.TrimPrefix(tag, "!!"))
}
