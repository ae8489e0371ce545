package api

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
)

// portal and login are names, not addresses: clients derive the token audience from the first and never contact the second when
// they use the identity endpoint.
const (
	portal       = "https://portal.berth.test"
	login        = "https://login.berth.test"
	amlAudience  = "https://ml.azure.test"
	cloudName    = "Berth"
	accessLife   = 24 * time.Hour
	tokenTypeTag = "Bearer"
)

// metadata is the cloud's description. Old api-versions want a list, 2022-09-01 one object.
func (s *Server) metadata(w http.ResponseWriter, r *http.Request) {
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
	c := &call{s: s, w: w, r: r}
	var err error
	if r.URL.Query().Get("api-version") >= "2022" {
		err = c.send(http.StatusOK, cloud)
	} else {
		err = c.send(http.StatusOK, []any{cloud})
	}
	if err != nil {
		s.Log.Debug("metadata not sent", "err", err)
	}
}

func (s *Server) discovery(w http.ResponseWriter, r *http.Request) {
	c := &call{s: s, w: w, r: r}
	if err := c.send(http.StatusOK, map[string]string{"api": s.BaseURL, "history": s.BaseURL, "studio": portal}); err != nil {
		s.Log.Debug("discovery not sent", "err", err)
	}
}

func (s *Server) noRegistry(w http.ResponseWriter, r *http.Request) {
	s.fail(w, r, berth.Errorf(berth.NotFound, "there is no registry %q: this server has no registries", r.PathValue("name")))
}

// identityRoutes play the endpoints that azure-identity asks: managed identity in its four forms, and a token endpoint for
// service principals. Each wants the caller's Berth token as proof.
func (s *Server) identityRoutes() {
	s.mux.HandleFunc("/msi/token", s.identified(func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("X-IDENTITY-HEADER")
		if key == "" {
			key = r.Header.Get("secret")
		}
		s.identity(w, r, key)
	}))
	s.mux.HandleFunc("GET /metadata/identity/oauth2/token", s.identified(func(w http.ResponseWriter, r *http.Request) {
		s.identity(w, r, auth.Bearer(r.Header.Get("Authorization")))
	}))
	s.mux.HandleFunc("/", s.tenant)
}

// tenant serves what lies below a tenant's name, which can be any; everything else is not there.
func (s *Server) tenant(w http.ResponseWriter, r *http.Request) {
	tenant, rest, _ := strings.Cut(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case r.Method == http.MethodGet && strings.HasSuffix(rest, ".well-known/openid-configuration"):
		s.openID(w, r, tenant)
	case r.Method == http.MethodPost && (rest == "oauth2/token" || rest == "oauth2/v2.0/token"):
		s.identified(s.oauth)(w, r)
	default:
		s.fail(w, r, notFound(&call{r: r}))
	}
}

func (s *Server) identity(w http.ResponseWriter, r *http.Request, key string) {
	p, err := s.Authority.Check(r.Context(), key, time.Now())
	if err != nil {
		s.fail(w, r, err)
		return
	}
	if p.Task != "" || p.Derived {
		s.fail(w, r, berth.Errorf(berth.Denied, "only a token made with `berth token create` can be exchanged: a task's or an access token cannot"))
		return
	}
	fields, err := postedForm(w, r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	resource := cmp.Or(r.URL.Query().Get("resource"), fields.Get("resource"), s.BaseURL)
	token, exp := s.Authority.AccessToken(p, strings.TrimSuffix(resource, "/.default"), accessLife, time.Now())
	c := &call{s: s, w: w, r: r}
	c.w.Header().Set("Cache-Control", "no-store")
	err = c.send(http.StatusOK, map[string]string{
		"access_token": token, "expires_on": strconv.FormatInt(exp.Unix(), 10), "resource": resource, "token_type": tokenTypeTag,
		"client_id": p.User,
	})
	if err != nil {
		s.Log.Debug("token not sent", "err", err)
	}
}

func (s *Server) openID(w http.ResponseWriter, r *http.Request, tenant string) {
	t := s.BaseURL + "/" + tenant
	oauth := t + "/oauth2/v2.0"
	if strings.HasSuffix(t, "/adfs") {
		oauth = t + "/oauth2"
	}
	c := &call{s: s, w: w, r: r}
	err := c.send(http.StatusOK, map[string]string{
		"issuer": t, "authorization_endpoint": oauth + "/authorize", "token_endpoint": oauth + "/token",
		"device_authorization_endpoint": oauth + "/devicecode",
	})
	if err != nil {
		s.Log.Debug("openid configuration not sent", "err", err)
	}
}

// oauth serves client_credentials: the client secret is a Berth token.
func (s *Server) oauth(w http.ResponseWriter, r *http.Request) {
	c := &call{s: s, w: w, r: r}
	fields, err := postedForm(w, r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	secret := fields.Get("client_secret")
	if secret == "" {
		secret = fields.Get("client_assertion")
	}
	p, err := s.Authority.Check(r.Context(), secret, time.Now())
	if err != nil || p.Task != "" || p.Derived || fields.Get("grant_type") != "client_credentials" {
		err = c.send(http.StatusUnauthorized, map[string]string{
			"error": "invalid_client", "error_description": "give a Berth token as the client secret, with grant_type=client_credentials",
		})
	} else {
		token, _ := s.Authority.AccessToken(p, strings.TrimSuffix(fields.Get("scope"), "/.default"), accessLife, time.Now())
		c.w.Header().Set("Cache-Control", "no-store")
		err = c.send(http.StatusOK, map[string]any{
			"token_type": tokenTypeTag, "expires_in": int(accessLife.Seconds()) - 1, "access_token": token,
		})
	}
	if err != nil {
		s.Log.Debug("token not sent", "err", err)
	}
}

// tokens lists, makes and revokes user tokens. An administrator sees all; a user may make none.
func (s *Server) tokens(c *call) error {
	if c.who.Role != auth.Admin {
		return berth.Errorf(berth.Denied, "only an administrator may see and make tokens")
	}
	switch name := c.r.PathValue("name"); {
	case c.r.Method == http.MethodGet && name == "":
		ts, err := s.Authority.List(c.ctx())
		if err != nil {
			return err
		}
		return c.send(http.StatusOK, map[string]any{"value": ts})
	case c.r.Method == http.MethodPost && name == "":
		var t auth.Token
		if err := c.into(&t); err != nil {
			return err
		}
		secret, err := s.Authority.Create(c.ctx(), t)
		if err != nil {
			return err
		}
		c.w.Header().Set("Cache-Control", "no-store")
		return c.send(http.StatusCreated, map[string]any{"name": t.Name, "token": secret, "expires": t.Expires})
	case c.r.Method == http.MethodDelete && name != "":
		if err := s.Authority.Revoke(c.ctx(), name); err != nil {
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
