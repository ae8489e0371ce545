package auth

import "crypto/ed25519"

// ShellKey is the host key of shells in jobs.
func (k *Keys) ShellKey() ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(k.mac("shells of jobs")[:ed25519.SeedSize])
}
