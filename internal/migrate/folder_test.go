package migrate_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/migrate"
)

// TestDatabaseIsNamed: where MLflow keeps runs in a database, the error says how to import them.
func TestDatabaseIsNamed(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "mlflow.db")
	if err := os.MkdirAll(filepath.Join(dir, "mlruns", "1", "0123", "artifacts"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := migrate.Folder(filepath.Join(dir, "mlruns")); berth.CodeOf(err) != berth.Invalid || strings.Contains(err.Error(), "database") {
		t.Errorf("without a database: %v", err)
	}
	if err := os.WriteFile(file, []byte("SQLite format 3"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{filepath.Join(dir, "mlruns"), filepath.Join(dir, "mlruns") + "/", dir, file, "sqlite:///" + file} {
		_, err := migrate.Folder(from)
		if berth.CodeOf(err) != berth.Invalid || !strings.Contains(err.Error(), "mlflow server --backend-store-uri sqlite:///"+file) {
			t.Errorf("%s: %v", from, err)
		}
	}
}
