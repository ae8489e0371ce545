package api

import (
	"cmp"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/locate"
)

// identityService serves what a client asks before it has a token, and tokens.
type identityService struct {
	locate.Locator
	log       *slog.Logger
	authority *auth.Authority
	fromTask  func(*http.Request) bool
	front     *Server
}

// portal and login are names, not addresses: clients derive the token audience from the first and
// never contact the second when they use the identity endpoint.
const (
	portal       = "https://portal.berth.test"
	login        = "https://login.berth.test"
	amlAudience  = "https://ml.azure.test"
	cloudName    = "Berth"
	accessLife   = 24 * time.Hour
	tokenTypeTag = "Bearer"
)

// metadata is the cloud's description. Old api-versions want a list, 2022-09-01 one object.
func (s *identityService) metadata(w http.ResponseWriter, r *http.Request) {
	suffix := s.Suffix
	if s.Zone != "" {
		suffix = s.Zone
	}
	cloud := map[string]any{
		"name": cloudName, "portal": portal, "resourceManager": s.BaseURL + "/",
		"authentication": map[string]any{
			"loginEndpoint": login, "audiences": []string{s.BaseURL, "https://management.azure.com/"},
			"tenant": "common", "identityProvider": "AAD",
		},
		"suffixes": map[string]any{"storage": suffix, "keyVaultDns": "vault.berth.test", "acrLoginServer": "cr.berth.test"},
		"graph":    "https://graph.berth.test/", "graphAudience": "https://graph.berth.test/",
	}
	c := &call{w: w, r: r}
	var err error
	if r.URL.Query().Get("api-version") >= "2022" {
		err = c.send(http.StatusOK, cloud)
	} else {
		err = c.send(http.StatusOK, []any{cloud})
	}
	if err != nil {
		s.log.Debug("metadata not sent", "err", err)
	}
}

func (s *identityService) discovery(w http.ResponseWriter, r *http.Request) {
	c := &call{w: w, r: r}
	if err := c.send(http.StatusOK, map[string]string{"api": s.BaseURL, "history": s.BaseURL, "studio": portal}); err != nil {
		s.log.Debug("discovery not sent", "err", err)
	}
}

func (s *identityService) noRegistry(w http.ResponseWriter, r *http.Request) {
	s.front.fail(w, r, berth.Errorf(berth.NotFound, "there is no registry %q: this server has no registries", r.PathValue("name")))
}

// managed serves managed identity as App Service and Functions have it.
func (s *identityService) managed(w http.ResponseWriter, r *http.Request) {
	s.identity(w, r, identityKey(r))
}

// identityKey is what a client of managed identity shows in the header of its request.
func identityKey(r *http.Request) string {
	return cmp.Or(r.Header.Get("X-IDENTITY-HEADER"), r.Header.Get("secret"))
}

// managedVM serves managed identity as virtual machines have it.
func (s *identityService) managedVM(w http.ResponseWriter, r *http.Request) {
	s.identity(w, r, bearerKey(r))
}

// bearerKey is what a client of a virtual machine's identity shows.
func bearerKey(r *http.Request) string { return auth.Bearer(r.Header.Get("Authorization")) }

// tenant serves what lies below a tenant's name, which can be any; everything else is not there.
func (s *identityService) tenant(w http.ResponseWriter, r *http.Request) {
	tenant, rest, _ := strings.Cut(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case r.Method == http.MethodGet && strings.HasSuffix(rest, ".well-known/openid-configuration"):
		s.openID(w, r, tenant)
	case r.Method == http.MethodPost && (rest == "oauth2/token" || rest == "oauth2/v2.0/token"):
		s.identified(s.oauth, func(*http.Request) string { return "" })(w, r)
	default:
		s.front.fail(w, r, notFound(&call{r: r}))
	}
}

func (s *identityService) identity(w http.ResponseWriter, r *http.Request, key string) {
	p, err := s.authority.Check(r.Context(), key, time.Now())
	if err != nil {
		s.front.fail(w, r, err)
		return
	}
	if p.Task != "" || p.Derived {
		s.front.fail(w, r, berth.Errorf(berth.Denied, "only a token created with `berth token create` can be exchanged: a task's or an access token cannot"))
		return
	}
	fields, err := postedForm(w, r)
	if err != nil {
		s.front.fail(w, r, err)
		return
	}
	resource := cmp.Or(r.URL.Query().Get("resource"), fields.Get("resource"), s.BaseURL)
	token, exp := s.authority.AccessToken(p, strings.TrimSuffix(resource, "/.default"), accessLife, time.Now())
	c := &call{w: w, r: r}
	c.w.Header().Set("Cache-Control", "no-store")
	err = c.send(http.StatusOK, map[string]string{
		"access_token": token, "expires_on": strconv.FormatInt(exp.Unix(), 10), "resource": resource, "token_type": tokenTypeTag,
		"client_id": p.User,
	})
	if err != nil {
		s.log.Debug("token not sent", "err", err)
	}
}

func (s *identityService) openID(w http.ResponseWriter, r *http.Request, tenant string) {
	t := s.BaseURL + "/" + tenant
	oauth := t + "/oauth2/v2.0"
	if strings.HasSuffix(t, "/adfs") {
		oauth = t + "/oauth2"
	}
	c := &call{w: w, r: r}
	err := c.send(http.StatusOK, map[string]string{
		"issuer": t, "authorization_endpoint": oauth + "/authorize", "token_endpoint": oauth + "/token",
		"device_authorization_endpoint": oauth + "/devicecode",
	})
	if err != nil {
		s.log.Debug("openid configuration not sent", "err", err)
	}
}

// oauth serves client_credentials: the client secret is a Berth token.
func (s *identityService) oauth(w http.ResponseWriter, r *http.Request) {
	c := &call{w: w, r: r}
	fields, err := postedForm(w, r)
	if err != nil {
		s.front.fail(w, r, err)
		return
	}
	secret := fields.Get("client_secret")
	if secret == "" {
		secret = fields.Get("client_assertion")
	}
	p, err := s.authority.Check(r.Context(), secret, time.Now())
	if err != nil || p.Task != "" || p.Derived || fields.Get("grant_type") != "client_credentials" {
		err = c.send(http.StatusUnauthorized, map[string]string{
			"error": "invalid_client", "error_description": "give a Berth token as the client secret, with grant_type=client_credentials",
		})
	} else {
		token, _ := s.authority.AccessToken(p, strings.TrimSuffix(fields.Get("scope"), "/.default"), accessLife, time.Now())
		c.w.Header().Set("Cache-Control", "no-store")
		err = c.send(http.StatusOK, map[string]any{
			"token_type": tokenTypeTag, "expires_in": int(accessLife.Seconds()) - 1, "access_token": token,
		})
	}
	if err != nil {
		s.log.Debug("token not sent", "err", err)
	}
}

// tokens lists, makes and revokes user tokens. An administrator sees all; a user may make none.
func (s *identityService) tokens(c *call) error {
	if c.who.Role != auth.Admin {
		return berth.Errorf(berth.Denied, "only an administrator may see and create tokens")
	}
	switch name := c.r.PathValue("name"); {
	case c.r.Method == http.MethodGet && name == "":
		ts, err := s.authority.List(c.ctx())
		if err != nil {
			return err
		}
		return c.send(http.StatusOK, map[string]any{"value": ts})
	case c.r.Method == http.MethodPost && name == "":
		var t auth.Token
		if err := c.into(&t); err != nil {
			return err
		}
		secret, err := s.authority.Create(c.ctx(), t)
		if err != nil {
			return err
		}
		c.w.Header().Set("Cache-Control", "no-store")
		return c.send(http.StatusCreated, map[string]any{"name": t.Name, "token": secret, "expires": t.Expires})
	case c.r.Method == http.MethodDelete && name != "":
		if err := s.authority.Revoke(c.ctx(), name); err != nil {
			return err
		}
		return c.empty(http.StatusNoContent)
	}
	return methodError(c)
}

// wrongMethod is what clients see of a method that is not possible.
const wrongMethod = "MethodNotAllowed"

func methodError(c *call) error {
	return &berth.Error{Code: berth.Invalid, Wire: wrongMethod, Msg: c.r.Method + " is not possible on " + c.r.URL.Path}
}
