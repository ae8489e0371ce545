-- Who wrote a blob: '' where that is not known.
ALTER TABLE blobs ADD COLUMN writer TEXT NOT NULL DEFAULT '';
