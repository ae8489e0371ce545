//go:build unix

package cli

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
	"github.com/berthml/berth/internal/backup"
	"github.com/berthml/berth/internal/config"
)

// placeFlags are the flags that say how the place of backups is opened.
type placeFlags struct {
	backup.PlaceOptions
	passphrase string // the file of it
}

func (p *placeFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&p.Endpoint, "endpoint", "", "server of an s3:// place (default: Amazon)")
	f.StringVar(&p.Region, "region", "", "region of an s3:// place")
	f.StringVar(&p.KeyFile, "key-file", "", "file with the access key id and the secret access key, a line each (default: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)")
	f.StringVar(&p.passphrase, "passphrase-file", "", "file with the passphrase that the backups are encrypted with")
}

// open opens the place at.
func (p *placeFlags) open(cmd *cobra.Command, at string, create bool) (backup.Place, error) {
	p.At, p.Create = at, create
	if p.passphrase != "" {
		text, err := os.ReadFile(p.passphrase)
		if err != nil {
			return nil, berth.Errorf(berth.Invalid, "--passphrase-file: %w", err)
		}
		if p.Passphrase = strings.TrimSpace(string(text)); p.Passphrase == "" {
			return nil, berth.Errorf(berth.Invalid, "--passphrase-file: %s is empty", p.passphrase)
		}
	}
	return backup.Open(cmd.Context(), p.PlaceOptions)
}

func backupCommand(s *session) *cobra.Command {
	var p placeFlags
	var o backup.Options
	cmd := &cobra.Command{
		Use:   "backup PLACE",
		Short: "Back up the server's home to a folder or a bucket",
		Long: "Copies everything a server owns to a folder or to s3://BUCKET/PREFIX, while it runs: database, files, keys, metrics and\n" +
			"configuration. Contents that the place has already are not copied again. Run it as the server's user, on its machine.\n" +
			"A backup contains the server's secrets: keep it as you keep those, or encrypt it with --passphrase-file.",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("give the place of the backups, a folder or s3://BUCKET/PREFIX\nsee `berth backup --help`")
			}
			cfg, err := s.ownHome("backed up")
			if err != nil {
				return err
			}
			server, err := config.Load(cfg.Home)
			if err != nil {
				return err
			}
			place, err := p.open(cmd, args[0], true)
			if err != nil {
				return err
			}
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			if o.Keep < 0 {
				return usagef("--keep %d: give how many backups to keep, or 0 for all", o.Keep)
			}
			r, err := backup.Create(ctx, server, place, o)
			if err != nil {
				return err
			}
			s.say("backed up %s to %s: %d files, %s; copied %d, %s", cfg.Home, place, len(r.Files)+r.Blobs, size(r.Bytes), r.Copied, size(r.CopiedBytes))
			if r.Removed > 0 {
				s.say("removed %d older %s", r.Removed, plural(r.Removed, "backup"))
			}
			if _, err := fmt.Fprintln(s.out, r.ID); err != nil {
				return err
			}
			if n := len(r.Damaged); n > 0 {
				return berth.Errorf(berth.Internal, "%d %s of files are missing or damaged in %s and are not in the backup, beginning with %s", n, plural(n, "content"), cfg.Home, r.Damaged[0])
			}
			return nil
		},
	}
	p.add(cmd)
	cmd.Flags().IntVar(&o.Keep, "keep", 0, "remove older backups until this many are left; 0 keeps all")
	cmd.Flags().StringArrayVar(&o.Exclude, "exclude", nil, "folder at the top of the home to leave out, for example instances")
	cmd.AddCommand(backupList(s), backupVerify(s))
	return cmd
}

// ownHome is the configuration of a command about a home of this machine.
func (s *session) ownHome(done string) (client.Config, error) {
	cfg, err := s.config()
	if err == nil && cfg.URL != "" {
		err = berth.Errorf(berth.Conflict, "%s %s, which cannot be %s from here; name a home with --home", s.whence(), cfg.URL, done)
	}
	return cfg, err
}

func backupList(s *session) *cobra.Command {
	var p placeFlags
	cmd := &cobra.Command{
		Use: "list PLACE", Short: "List the backups at a place, oldest first", Args: oneArg("place"),
		RunE: func(cmd *cobra.Command, args []string) error {
			place, err := p.open(cmd, args[0], false)
			if err != nil {
				return err
			}
			ids, err := backup.List(cmd.Context(), place)
			if err != nil {
				return err
			}
			t := table{header: []string{"ID", "TAKEN", "HOST", "HOME", "SIZE", "BERTH"}}
			for _, id := range ids {
				m, err := backup.Read(cmd.Context(), place, id)
				if err != nil {
					s.warn("%v", err)
					continue
				}
				t.add(cell{id, ""}, cell{m.Taken.Local().Format("2006-01-02 15:04"), ""}, cell{m.Host, ""}, cell{m.Home, ""}, cell{size(m.Bytes), ""}, cell{m.Version, ""})
			}
			return s.printRows(t)
		},
	}
	p.add(cmd)
	return cmd
}

func backupVerify(s *session) *cobra.Command {
	var p placeFlags
	cmd := &cobra.Command{
		Use: "verify PLACE [ID]", Short: "Read a backup, by default the latest, and check the hash of everything in it", Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			place, err := p.open(cmd, args[0], false)
			if err != nil {
				return err
			}
			id, err := chosenBackup(cmd, place, args[1:])
			if err != nil {
				return err
			}
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			m, wrong, err := backup.Verify(ctx, place, id)
			if err != nil {
				return err
			}
			for _, w := range wrong {
				s.say("%v", w)
			}
			if n := len(wrong); n > 0 {
				return berth.Errorf(berth.Invalid, "backup %s is not whole: %d %s", id, n, plural(n, "error"))
			}
			s.say("backup %s is whole: %d files, %s, schema %d", id, len(m.Files)+m.Blobs, size(m.Bytes), m.Schema)
			return nil
		},
	}
	p.add(cmd)
	return cmd
}

// chosenBackup is the backup that was named, or the latest.
func chosenBackup(cmd *cobra.Command, place backup.Place, args []string) (string, error) {
	if len(args) > 0 {
		return args[0], nil
	}
	ids, err := backup.List(cmd.Context(), place)
	if err == nil && len(ids) == 0 {
		err = berth.Errorf(berth.NotFound, "there is no finished backup at %s", place)
	}
	if err != nil {
		return "", err
	}
	return ids[len(ids)-1], nil
}

func restoreCommand(s *session) *cobra.Command {
	var p placeFlags
	var file string
	cmd := &cobra.Command{
		Use:   "restore PLACE [ID]",
		Short: "Restore a backup, by default the latest, into an empty home",
		Long: "Makes an empty home what a backup has. The database must not exist, or be empty if it is PostgreSQL. Every content is\n" +
			"checked against its hash. A restore that was interrupted is continued by the same command; no server starts in such a home.",
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := s.ownHome("restored")
			if err != nil {
				return err
			}
			var text []byte
			if file != "" {
				if text, err = os.ReadFile(file); err != nil {
					return berth.Errorf(berth.Invalid, "--config: %w", err)
				}
			}
			place, err := p.open(cmd, args[0], false)
			if err != nil {
				return err
			}
			id, err := chosenBackup(cmd, place, args[1:])
			if err != nil {
				return err
			}
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			m, err := backup.Restore(ctx, place, id, cfg.Home, text)
			if err != nil {
				return err
			}
			if n := len(m.Damaged); n > 0 {
				s.warn("%d %s of files were missing or damaged when the backup was made, and still are", n, plural(n, "content"))
			}
			s.say("restored backup %s of %s on %s, taken %s, to %s", id, m.Home, m.Host, m.Taken.Local().Format("2006-01-02 15:04:05"), cfg.Home)
			return nil
		},
	}
	p.add(cmd)
	cmd.Flags().StringVar(&file, "config", "", "file to use as berth.yaml instead of the one in the backup, for example with another database")
	return cmd
}
