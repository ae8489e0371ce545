package front

import (
	"encoding/xml"
	"io"
	"strconv"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob"
)

// maxBlockList is enough for blob.MaxBlocks of the longest ids.
const maxBlockList = 8 << 20

// parseBlockList reads the ids of a block list. Blocks in the blob's present content are not kept
// apart, so a list cannot refer to them.
func parseBlockList(r io.Reader) ([]string, error) {
	bad := coded(berth.Invalid, "InvalidXmlDocument", "the body is not a block list")
	d := xml.NewDecoder(r)
	var ids []string
	depth := 0
	for {
		token, err := d.Token()
		if err == io.EOF && depth == 0 && ids != nil {
			return ids, nil
		}
		if err != nil {
			return nil, bad
		}
		switch e := token.(type) {
		case xml.StartElement:
			switch {
			case depth == 0 && ids == nil && e.Name.Local == "BlockList":
				depth, ids = 1, []string{}
			case depth == 1 && (e.Name.Local == "Latest" || e.Name.Local == "Uncommitted"):
				var text string
				if d.DecodeElement(&text, &e) != nil {
					return nil, bad
				}
				id, err := blockID(strings.TrimSpace(text))
				if err != nil {
					return nil, coded(berth.Invalid, "InvalidBlockList", "a block id is not the base64 of 1 to 64 bytes")
				}
				if ids = append(ids, id); len(ids) > blob.MaxBlocks {
					return nil, coded(berth.Invalid, "BlockListTooLong", "the block list is too long")
				}
			case depth == 1 && e.Name.Local == "Committed":
				return nil, coded(berth.Invalid, "InvalidBlockList",
					"this server does not keep the blocks of committed blobs; upload the whole blob again")
			default:
				return nil, bad
			}
		case xml.EndElement:
			depth--
		}
	}
}

// blockList answers Get Block List.
func (c *call) blockList() error {
	kind := strings.ToLower(c.query.Get("blocklisttype"))
	blocks, err := c.h.store.Blocks(c.r.Context(), c.container, c.name)
	if err != nil {
		return err
	}
	b, err := c.h.store.Stat(c.r.Context(), c.container, c.name)
	if err != nil && (berth.CodeOf(err) != berth.NotFound || len(blocks) == 0) {
		return err
	}
	if err == nil {
		c.tag(b)
		c.w.Header().Set("x-ms-blob-content-length", strconv.FormatInt(b.Size, 10))
	}
	x := c.document()
	x.open("BlockList")
	if kind != "uncommitted" {
		x.empty("CommittedBlocks")
	}
	if kind == "uncommitted" || kind == "all" {
		x.open("UncommittedBlocks")
		for _, b := range blocks {
			x.open("Block")
			x.leaf("Name", b.ID)
			x.leaf("Size", strconv.FormatInt(b.Size, 10))
			x.close("Block")
		}
		x.close("UncommittedBlocks")
	}
	x.close("BlockList")
	return x.w.Flush()
}
