package envs

import (
	"math"
	"strconv"
	"strings"

	"github.com/berthml/berth/internal/docker"
)

// Apply takes over options as docker run has them (docker_args of a job): --shm-size, --ipc,
// --network, --env, --cap-add and --ulimit. It returns the ones that are left, which have no
// effect: not understood, or not for a job to decide.
func (s *ContainerSpec) Apply(args []string) (left []string) {
	var words []string
	for _, a := range args {
		words = append(words, strings.Fields(a)...)
	}
	for i := 0; i < len(words); i++ {
		word := words[i]
		name, value, glued := strings.Cut(word, "=")
		if !glued && strings.HasPrefix(name, "-") && i+1 < len(words) && !strings.HasPrefix(words[i+1], "-") {
			i++
			value = words[i]
			word += " " + value
		}
		if !s.apply(name, value) {
			left = append(left, word)
		}
	}
	return left
}

func (s *ContainerSpec) apply(name, value string) bool {
	if value == "" {
		return false
	}
	switch name {
	case "--shm-size":
		n, ok := size(value)
		if ok {
			s.ShmSize = n
		}
		return ok
	case "--ipc":
		s.IPC = value
	case "--network", "--net":
		s.Network = value
	case "--env", "-e":
		if !strings.Contains(value, "=") {
			return false
		}
		s.Env = append(s.Env, value)
	case "--cap-add":
		s.CapAdd = append(s.CapAdd, value)
	case "--ulimit":
		if _, ok := ulimit(value); !ok {
			return false
		}
		s.Ulimits = append(s.Ulimits, value)
	default:
		return false
	}
	return true
}

// size reads 512m or 2g.
func size(s string) (int64, bool) {
	s = strings.TrimSuffix(strings.ToLower(s), "b")
	shift := 0
	if i := strings.IndexAny(s, "kmgt"); i >= 0 && i == len(s)-1 {
		shift = 10 * (1 + strings.IndexByte("kmgt", s[i]))
		s = s[:i]
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || f <= 0 || f > math.MaxInt64/float64(int64(1)<<shift) {
		return 0, false
	}
	return int64(f * float64(int64(1)<<shift)), true
}

// ulimit reads name=soft[:hard].
func ulimit(s string) (docker.Ulimit, bool) {
	name, limits, ok := strings.Cut(s, "=")
	soft, hard, two := strings.Cut(limits, ":")
	if !two {
		hard = soft
	}
	a, err1 := strconv.ParseInt(soft, 10, 64)
	b, err2 := strconv.ParseInt(hard, 10, 64)
	if !ok || err1 != nil || err2 != nil {
		return docker.Ulimit{}, false
	}
	return docker.Ulimit{Name: name, Soft: a, Hard: b}, true
}
