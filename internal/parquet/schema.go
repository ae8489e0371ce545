package parquet

import "github.com/berthml/berth"

// Physical types.
const (
	typeBoolean = iota
	typeInt32
	typeInt64
	typeInt96
	typeFloat
	typeDouble
	typeBytes
	typeFixed
)

// Repetition of a schema element.
const (
	required = iota
	optional
	repeated
)

// Fields of a schema element.
const (
	elementType       = 1
	elementLength     = 2
	elementRepetition = 3
	elementName       = 4
	elementChildren   = 5
	elementConverted  = 6
	elementScale      = 7
	elementLogical    = 10
)

// maxLeaves limits the columns of a file, those within columns counted.
const maxLeaves = 10_000

// column is a column of the table: an element below the root of the schema, with all below it.
type column struct {
	name        string
	elements    [2]int // from and to, of the elements of the schema
	leaves      [2]int // of the leaves
	element     record
	hasChildren bool
}

// leaf is a column of the file: an element without children.
type leaf struct {
	element          record
	physical, length int
	maxDef, maxRep   int
}

// size is how many bytes a value has, or 0 if they differ.
func (l *leaf) size() int {
	switch l.physical {
	case typeBoolean:
		return 1
	case typeInt32, typeFloat:
		return 4
	case typeInt64, typeDouble:
		return 8
	case typeInt96:
		return 12
	case typeFixed:
		return l.length
	}
	return 0
}

// schema is the elements of a file, depth first.
type schema struct {
	raw     [][]byte
	columns []column
	leaves  []leaf
}

func parseSchema(l list) (*schema, error) {
	if l.count == 0 || l.count > 4*maxLeaves {
		return nil, damaged("its schema has %d elements; at most %d are allowed", l.count, 4*maxLeaves)
	}
	s := &schema{}
	for l.count > 0 {
		b, err := l.next()
		if err != nil {
			return nil, err
		}
		s.raw = append(s.raw, b)
	}
	root, _, err := parseRecord(s.raw[0])
	if err != nil {
		return nil, err
	}
	at := 1
	for range root.number(elementChildren, 0) {
		c := column{elements: [2]int{at, 0}, leaves: [2]int{len(s.leaves), 0}}
		if at >= len(s.raw) {
			break
		}
		if c.element, _, err = parseRecord(s.raw[at]); err != nil {
			return nil, err
		}
		c.name, c.hasChildren = string(c.element.bytes(elementName)), c.element.number(elementChildren, 0) > 0
		if at, err = s.walk(at, 0, 0, 1); err != nil {
			return nil, err
		}
		c.elements[1], c.leaves[1] = at, len(s.leaves)
		s.columns = append(s.columns, c)
	}
	if at != len(s.raw) || len(s.leaves) == 0 || int64(len(s.columns)) != root.number(elementChildren, 0) {
		return nil, damaged("its schema is not a tree")
	}
	return s, nil
}

// walk adds the leaves of the element at a place, and returns where the next one is.
func (s *schema) walk(at, def, rep, depth int) (int, error) {
	if at >= len(s.raw) || depth > maxNesting {
		return 0, damaged("its schema is not a tree")
	}
	e, _, err := parseRecord(s.raw[at])
	if err != nil {
		return 0, err
	}
	switch e.number(elementRepetition, required) {
	case optional:
		def++
	case repeated:
		def, rep = def+1, rep+1
	}
	children := e.number(elementChildren, 0)
	if children <= 0 {
		l := leaf{element: e, physical: int(e.number(elementType, -1)), length: int(e.number(elementLength, 0)), maxDef: def, maxRep: rep}
		if l.physical < typeBoolean || l.physical > typeFixed || l.physical == typeFixed && (l.length <= 0 || l.length > maxValue) {
			return 0, damaged("column %s has no type", e.bytes(elementName))
		}
		if len(s.leaves) == maxLeaves {
			return 0, berth.Errorf(berth.Invalid, "there are more than %d columns", maxLeaves)
		}
		s.leaves = append(s.leaves, l)
		return at + 1, nil
	}
	at++
	for range children {
		if at, err = s.walk(at, def, rep, depth+1); err != nil {
			return 0, err
		}
	}
	return at, nil
}

// pathElement is the element of the column that says which file a row is from.
func pathElement(name string) []byte {
	return record{
		i32(elementType, typeBytes), i32(elementRepetition, required), text(elementName, name), i32(elementConverted, 0),
		structOf(elementLogical, record{structOf(1, nil)}),
	}.appendTo(nil)
}
