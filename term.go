package berth

import (
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"strconv"
)

// Several servers may share a database. One of them leads: it decides what becomes of jobs and
// computes, and acts on it. Each time another begins to lead a term begins, and terms are numbered.
// What a leader does carries the number of its term in its context, and whoever carries it out
// refuses the number of an earlier term: a leader that was replaced without noticing changes
// nothing any more.

type termKey struct{}

// WithTerm returns a context for work done in a term.
func WithTerm(ctx context.Context, term int64) context.Context {
	return context.WithValue(ctx, termKey{}, term)
}

// TermOf returns the term in which work is done, 0 if it does not matter who leads.
func TermOf(ctx context.Context) int64 {
	term, _ := ctx.Value(termKey{}).(int64)
	return term
}

type termProofKey struct{}

// WithTermProof adds to the context of a term what shows that a server of the database gave out its
// number: whoever notes it down keeps that beside it, because tasks can write where it is noted.
func WithTermProof(ctx context.Context, proof string) context.Context {
	return context.WithValue(ctx, termProofKey{}, proof)
}

// TermProof is what [WithTermProof] added, or "".
func TermProof(ctx context.Context) string {
	proof, _ := ctx.Value(termProofKey{}).(string)
	return proof
}

// ProveTerm is the proof of a term: a public key, and a signature of the number with it. Who gets
// it over a connection knows by that that the key is the servers'.
func ProveTerm(key ed25519.PrivateKey, term int64) string {
	public, _ := key.Public().(ed25519.PublicKey)
	return hex.EncodeToString(public) + hex.EncodeToString(ed25519.Sign(key, signedTerm(term)))
}

// SameServers says whether a signature, the second part of a proof, is of another term of the
// servers that a proof is of.
func SameServers(proof string, term int64, signature string) bool {
	if len(proof) < 2*ed25519.PublicKeySize {
		return false
	}
	public, err := hex.DecodeString(proof[:2*ed25519.PublicKeySize])
	if err != nil {
		return false
	}
	sig, err := hex.DecodeString(signature)
	return err == nil && ed25519.Verify(public, signedTerm(term), sig)
}

// TermSignature is the second part of a proof.
func TermSignature(proof string) string { return proof[min(len(proof), 2*ed25519.PublicKeySize):] }

func signedTerm(term int64) []byte { return []byte("berth term " + strconv.FormatInt(term, 10)) }
