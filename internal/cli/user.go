package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

// A user is whoever has tokens: there is no other record of them.
func userCommand(s *session) *cobra.Command {
	cmd := &cobra.Command{
		Use: "user", Short: "Add, list and remove users, and replace their tokens", Args: cobra.ArbitraryArgs, RunE: group,
		Long: "A user is whoever has a token. These commands manage a user's tokens together; `berth token` manages single ones.\nAll of them require an administrator.",
	}
	cmd.AddCommand(userAdd(s), userList(s), userRotate(s), userRemove(s))
	return cmd
}

// lifeFlag is how long a token is valid.
type lifeFlag struct{ life time.Duration }

func (l *lifeFlag) add(cmd *cobra.Command, value string) {
	cmd.Flags().Var(l, "expires", "how long the token is valid, for example 90d or 720h; 0 means forever"+value)
}

func (l *lifeFlag) String() string {
	if l.life == 0 {
		return ""
	}
	return l.life.String()
}

func (*lifeFlag) Type() string { return "duration" }

// Set reads a duration, of which days are a unit.
func (l *lifeFlag) Set(text string) error {
	d, ok := spanOf(text)
	if _, plain := strconv.Atoi(text); !ok || plain == nil && d != 0 {
		return usagef("must be a duration in the future such as 90d or 720h, or 0")
	}
	l.life = d
	return nil
}

// until is when a token that is made now ends; zero is never.
func (l *lifeFlag) until() time.Time {
	if l.life == 0 {
		return time.Time{}
	}
	return time.Now().Add(l.life).UTC().Truncate(time.Second)
}

// tokensOf are the tokens of a user, oldest first.
func tokensOf(ctx context.Context, c *client.Client, user string) (own, all []client.Token, err error) {
	all, err = c.Tokens(ctx)
	for _, t := range all {
		if t.User == user {
			own = append(own, t)
		}
	}
	slices.SortStableFunc(own, func(a, b client.Token) int { return a.Created.Compare(b.Created) })
	return own, all, err
}

// freeName is a name that no token has: the user's, or that with a number.
func freeName(user string, all []client.Token) string {
	for n := 1; ; n++ {
		name := user
		if n > 1 {
			name += "-" + strconv.Itoa(n)
		}
		if !slices.ContainsFunc(all, func(t client.Token) bool { return strings.EqualFold(t.Name, name) }) {
			return name
		}
	}
}

func userAdd(s *session) *cobra.Command {
	var t client.Token
	var life lifeFlag
	cmd := &cobra.Command{
		Use: "add NAME", Short: "Add a user, and print the token to give them, which is shown only once", Args: oneArg("name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := s.open(cmd.Context())
			if err != nil {
				return err
			}
			own, all, err := tokensOf(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			if len(own) > 0 {
				return berth.Errorf(berth.Conflict, "the user %s exists; `berth user rotate %s` replaces their token, `berth token create` adds another", args[0], args[0])
			}
			t.Name, t.User, t.Expires = freeName(args[0], all), args[0], life.until()
			return s.giveToken(cmd.Context(), c, t)
		},
	}
	cmd.Flags().StringVar(&t.Role, "role", "user", "admin, user or reader")
	life.add(cmd, "")
	s.format.flags(cmd)
	return cmd
}

// giveToken makes a token, prints its secret and says what to do with it.
func (s *session) giveToken(ctx context.Context, c *client.Client, t client.Token) error {
	made, err := c.CreateToken(ctx, t)
	if err != nil {
		return err
	}
	if s.format.chosen() {
		return s.print(made)
	}
	if _, err := fmt.Fprintln(s.out, made.Secret); err != nil {
		return err
	}
	about, err := c.About(ctx)
	if err != nil {
		return err
	}
	until := ""
	if !made.Expires.IsZero() {
		until = "; valid until " + made.Expires.Local().Format("2006-01-02 15:04")
	}
	s.say("%s is a user with the role %s%s", made.User, made.Role, until)
	s.hint("give them the token, a copy of tls/ca.pem of the server's home if its certificate is not a public one, and this:\n"+
		"  berth login %s --ca ca.pem", about.URL)
	if made.Role != "reader" {
		s.warn("%s", berth.TokenIsShell)
	}
	s.warnLoopback(about.URL)
	return nil
}

// userRow is a user as `berth user list` shows them.
type userRow struct {
	User    string    `json:"user"`
	Roles   []string  `json:"roles"`
	Tokens  []string  `json:"tokens"`
	Created time.Time `json:"created"`          // of the first token
	Expires time.Time `json:"expires,omitzero"` // of the last token; zero is never
}

func userList(s *session) *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "List users, their roles and when their last token expires", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := s.open(cmd.Context())
			if err != nil {
				return err
			}
			tokens, err := c.Tokens(cmd.Context())
			if err != nil {
				return err
			}
			users := usersOf(tokens)
			if s.format.chosen() {
				return s.print(users)
			}
			t := table{header: []string{"USER", "ROLE", "SINCE", "EXPIRES", "TOKENS"}}
			for _, u := range users {
				expires, color := "never", ""
				if !u.Expires.IsZero() {
					expires = u.Expires.Local().Format("2006-01-02 15:04")
					if u.Expires.Before(time.Now()) {
						expires, color = "expired "+expires, red
					}
				}
				t.add(cell{u.User, ""}, cell{strings.Join(u.Roles, ","), ""}, cell{u.Created.Local().Format("2006-01-02"), ""}, cell{expires, color}, cell{strings.Join(u.Tokens, " "), ""})
			}
			return s.printRows(t)
		},
	}
	s.format.flags(cmd)
	return cmd
}

// usersOf are the users who have tokens, by name.
func usersOf(tokens []client.Token) []userRow {
	rows := map[string]*userRow{}
	for _, t := range tokens {
		u := rows[t.User]
		if u == nil {
			u = &userRow{User: t.User, Created: t.Created, Expires: t.Expires}
			rows[t.User] = u
		}
		if !slices.Contains(u.Roles, t.Role) {
			u.Roles = append(u.Roles, t.Role)
		}
		u.Tokens = append(u.Tokens, t.Name)
		if t.Created.Before(u.Created) {
			u.Created = t.Created
		}
		if t.Expires.IsZero() || !u.Expires.IsZero() && t.Expires.After(u.Expires) {
			u.Expires = t.Expires
		}
	}
	var out []userRow
	for _, u := range rows {
		slices.Sort(u.Roles)
		slices.Sort(u.Tokens)
		out = append(out, *u)
	}
	slices.SortFunc(out, func(a, b userRow) int { return cmp.Compare(a.User, b.User) })
	return out
}

func userRotate(s *session) *cobra.Command {
	var life lifeFlag
	cmd := &cobra.Command{
		Use: "rotate NAME", Short: "Give a user a new token and revoke the others; their jobs continue", Args: oneArg("name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := s.open(cmd.Context())
			if err != nil {
				return err
			}
			own, all, err := tokensOf(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			if own = slices.DeleteFunc(own, isOwner); len(own) == 0 {
				return berth.Errorf(berth.NotFound, "there is no user %s whose token can be replaced; `berth user list` lists users", args[0])
			}
			roles := usersOf(own)[0].Roles
			if len(roles) > 1 {
				return berth.Errorf(berth.Conflict, "%s has tokens with the roles %s; replace them one by one with `berth token`", args[0], strings.Join(roles, " and "))
			}
			// The new one first: jobs may use storage as long as their user has a token.
			t := client.Token{Name: freeName(args[0], all), User: args[0], Role: roles[0], Expires: life.until()}
			if err := s.giveToken(cmd.Context(), c, t); err != nil {
				return err
			}
			return s.revokeAll(cmd.Context(), c, own)
		},
	}
	life.add(cmd, "")
	s.format.flags(cmd)
	return cmd
}

// isOwner reports whether a token is that of the server's owner, which is not revoked.
func isOwner(t client.Token) bool { return strings.EqualFold(t.Name, "admin") }

func (s *session) revokeAll(ctx context.Context, c *client.Client, tokens []client.Token) error {
	for _, t := range tokens {
		if err := c.RevokeToken(ctx, t.Name); err != nil && berth.CodeOf(err) != berth.NotFound {
			return err
		}
		s.say("revoked %s", t.Name)
	}
	return nil
}

func userRemove(s *session) *cobra.Command {
	return &cobra.Command{
		Use: "remove NAME", Short: "Revoke all tokens of a user; what they made stays", Args: oneArg("name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := s.open(cmd.Context())
			if err != nil {
				return err
			}
			own, _, err := tokensOf(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			if slices.ContainsFunc(own, isOwner) {
				return berth.Errorf(berth.Conflict, "%s owns this server and cannot be removed", args[0])
			}
			if len(own) == 0 {
				return berth.Errorf(berth.NotFound, "there is no user %s; `berth user list` lists users", args[0])
			}
			if err := s.revokeAll(cmd.Context(), c, own); err != nil {
				return err
			}
			active := 0
			for j, err := range c.Jobs(cmd.Context(), client.JobQuery{View: "All", Status: berth.ActiveStatuses}) {
				if err != nil {
					return err
				}
				if j.SystemData.CreatedBy == args[0] {
					active++
				}
			}
			if active > 0 {
				s.warn("%d %s of %s still run, without access to storage; cancel them with `berth job cancel NAME`", active, plural(active, "job"), args[0])
			}
			return nil
		},
	}
}
