package auth

import (
	"context"
	"strings"
	"time"

	"github.com/berthml/berth"
)

// Programs on a compute instance act for its owner, with a token that has no entry in the database:
// it names the instance's node, and is good as long as the instance has that node. It never has
// more power than a user's.

const instancePrefix = "bi_"

// instanceName begins what the token of an instance is called where others have their names, which
// have no colon.
const instanceName = "instance:"

// InstanceCheck is how an Authority learns about compute instances.
type InstanceCheck struct {
	// Owner is the user of the instance that has a node, Unauthenticated when none has.
	Owner func(ctx context.Context, workspace, node string) (string, error)
	// From says why a request with this context may not use the token of a node: it does not come
	// from there.
	From func(ctx context.Context, node string) error
}

// InstanceToken makes the token of an instance's node; workspace is the workspace's key.
func (k *Keys) InstanceToken(workspace, node string) string {
	text := b64.EncodeToString([]byte(workspace)) + "." + node
	return instancePrefix + text + "." + k.instanceMark(text)
}

func (k *Keys) instanceMark(text string) string {
	return b64.EncodeToString(k.mac("instance " + text)[:24])
}

// OfInstance says whether a bearer token has the form of an instance's.
func OfInstance(bearer string) bool { return strings.HasPrefix(bearer, instancePrefix) }

// instanceToken is the principal of the token of an instance.
func (a *Authority) instanceToken(ctx context.Context, bearer string, now time.Time) (Principal, error) {
	text := strings.TrimPrefix(bearer, instancePrefix)
	i := strings.LastIndexByte(text, '.')
	if i < 0 || !signed(text[i+1:], a.Keys.mac("instance " + text[:i])[:24]) {
		return Principal{}, berth.Errorf(berth.Unauthenticated, "the instance's token is not valid")
	}
	return a.instance(ctx, text[:i], now, true)
}

// instance is the principal of what a token or what was derived from one says after its signature
// was checked. from says whether the request has to come from the instance.
func (a *Authority) instance(ctx context.Context, text string, now time.Time, from bool) (Principal, error) {
	coded, node, ok := strings.Cut(text, ".")
	workspace, err := b64.DecodeString(coded)
	if !ok || err != nil || a.Instances.Owner == nil {
		return Principal{}, berth.Errorf(berth.Unauthenticated, "the instance's token is not valid")
	}
	user, err := a.Instances.Owner(ctx, string(workspace), node)
	if err != nil {
		return Principal{}, err
	}
	err = a.recently("\x00writer "+user, now, func() error { return a.CheckWriter(ctx, user, now) })
	if err != nil {
		return Principal{}, err
	}
	if from && a.Instances.From != nil {
		if err := a.Instances.From(ctx, node); err != nil {
			return Principal{}, err
		}
	}
	return Principal{User: user, Role: User, Token: instanceName + text, mark: markOf(a.Keys.instanceMark(text))}, nil
}
