# Tables: mini-batches that are rows, which a script gets as a DataFrame.
import csv
import io
import json
import os


class Table:
    """The files of a table as the runner has written them: delimited text with quotes, or JSON lines."""

    def __init__(self, root, form, keys):
        self.root, self.keys = root, keys or []
        self.lines, self.delimiter, self.header = form["format"] != "delimited", form.get("delimiter", ","), bool(form.get("header"))

    def rows(self, stream):
        """Is each row's bytes. A quoted cell may have several lines."""
        row, quotes = b"", 0
        for line in stream:
            row += line
            quotes += 0 if self.lines else line.count(b'"')
            if quotes % 2 == 0:
                if row.strip():
                    yield row
                row, quotes = b"", 0
        if row.strip():
            yield row

    def columns(self, head):
        return next(csv.reader([head.decode("utf-8")], delimiter=self.delimiter))

    def key(self, row, columns):
        """Is the values of the key columns of a row, as text."""
        if self.lines:
            found = json.loads(row)
            return tuple(json.dumps(found.get(k)) for k in self.keys)
        cells = next(csv.reader(io.StringIO(row.decode("utf-8"), newline=""), delimiter=self.delimiter))
        return tuple(cells[columns.index(k)] for k in self.keys)

    def named(self, file, head):
        """Is the names of the columns of delimited text."""
        if self.lines:
            return []
        columns = self.columns(head) if self.header else [f"Column{i + 1}" for i in range(len(self.columns(head)))]
        for k in self.keys:
            if k not in columns:
                raise ValueError(f"partition_keys: {file} has no column {k}, only {', '.join(columns)}")
        return columns

    def each(self, files):
        """Is file, first byte, last byte and key of every row."""
        for file in files:
            at, columns = 0, None
            with open(os.path.join(self.root, file), "rb") as f:
                for row in self.rows(f):
                    if columns is None:
                        columns = self.named(file, row)
                        if self.header and not self.lines:
                            at += len(row)
                            continue
                    yield file, at, at + len(row), self.key(row, columns) if self.keys else None
                    at += len(row)

    def cut(self, files, size):
        """Cuts the table: into parts of about size bytes, or by the values of the key columns. A
        part says where its rows are; of keys, other rows may be between them."""
        parts = {} if self.keys else []
        for file, start, end, key in self.each(files):
            if self.keys:
                part = parts.setdefault(key, {"at": [], "rows": 0, "key": key})
            elif not parts or parts[-1]["bytes"] + end - start > size:
                parts.append(part := {"at": [], "rows": 0, "bytes": 0})
            else:
                part = parts[-1]
            if part["at"] and part["at"][-1][0] == file:
                part["at"][-1][2] = end
            else:
                part["at"].append([file, start, end])
            part["rows"] += 1
            if not self.keys:
                part["bytes"] += end - start
        return list(parts.values()) if self.keys else parts

    def frame(self, part):
        """Is the rows of a part, and the values of its keys."""
        import pandas

        frames = []
        for file, start, end in part["at"]:
            with open(os.path.join(self.root, file), "rb") as f:
                head = next(self.rows(f))
                f.seek(start)
                data = f.read(end - start)
            columns = self.named(file, head)
            if part.get("key") is not None:
                data = b"".join(r for r in self.rows(io.BytesIO(data)) if self.key(r, columns) == tuple(part["key"]))
            if self.lines:
                frames.append(pandas.read_json(io.BytesIO(data), lines=True))
            else:
                frames.append(pandas.read_csv(io.BytesIO(data), sep=self.delimiter, header=None, names=columns))
        frame = frames[0] if len(frames) == 1 else pandas.concat(frames, ignore_index=True)
        return frame, {k: frame[k].iloc[0] for k in self.keys} if self.keys else None


