"""Drives the endpoint with Azure's own client. Arguments: account URL, signature for everything, container URL with one for a folder."""
import os, sys
from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceModifiedError, ResourceNotFoundError
from azure.storage.blob import BlobBlock, BlobClient, BlobServiceClient, ContainerClient, ContentSettings

account, sas, folder = sys.argv[1:]
service = BlobServiceClient(account_url=account, credential=sas, max_single_put_size=1 << 20, max_block_size=1 << 18,
                            max_single_get_size=1 << 18, max_chunk_get_size=1 << 18)
box = service.get_container_client("box")


def refused(kind, code, call):
    try:
        call()
    except kind as e:
        assert e.error_code == code, (e.error_code, code)
        return
    raise AssertionError("not refused: " + code)


assert box.exists()
box.create_container()

# One piece, with metadata the way azure-ai-ml marks an upload as complete.
a = box.get_blob_client("LocalUpload/x//a ü+&.txt")
assert not a.exists()
refused(ResourceNotFoundError, "BlobNotFound", a.get_blob_properties)
a.upload_blob(b"hello", metadata={"k": "v"}, content_settings=ContentSettings(content_type="text/plain"), validate_content=True)
refused(ResourceExistsError, "BlobAlreadyExists", lambda: a.upload_blob(b"again"))
a.set_blob_metadata({"upload_status": "completed", "name": "n", "version": "None"})
p = a.get_blob_properties()
assert p.metadata == {"upload_status": "completed", "name": "n", "version": "None"}, p.metadata
assert p.size == 5 and p.content_settings.content_type == "text/plain" and p.blob_type == "BlockBlob" and p.creation_time
assert p.content_settings.content_md5, "no MD5"
assert a.download_blob(validate_content=True).readall() == b"hello"
assert a.download_blob(offset=1, length=3).readall() == b"ell"
a.upload_blob(b"hello2", overwrite=True, etag=a.get_blob_properties().etag, match_condition=MatchConditions.IfNotModified)
refused(ResourceModifiedError, "ConditionNotMet",
        lambda: a.upload_blob(b"x", overwrite=True, etag=p.etag, match_condition=MatchConditions.IfNotModified))

# Empty: a ranged read is refused, and the client knows what that means.
box.upload_blob("empty", b"")
assert box.download_blob("empty").readall() == b""

# Blocks, in parallel, and the chunked download that follows one version.
data = os.urandom((3 << 20) + 17)
box.upload_blob("big", data, max_concurrency=4, metadata={"m": "1"}, validate_content=True)
assert box.download_blob("big", max_concurrency=4, validate_content=True).readall() == data
assert box.get_blob_client("big").get_blob_properties().metadata == {"m": "1"}
refused(ResourceExistsError, "BlobAlreadyExists", lambda: box.upload_blob("big", data))
box.upload_blob("big", data[::-1], overwrite=True)
assert box.download_blob("big").readall() == data[::-1]

# A body of unknown length, and blocks by hand.
box.upload_blob("stream", iter([b"a" * 1000, b"b" * 1000]))
assert box.download_blob("stream").readall() == b"a" * 1000 + b"b" * 1000
blocks = box.get_blob_client("blocks")
blocks.stage_block("2", b"world")
blocks.stage_block("1", b"hello ")
committed, uncommitted = blocks.get_block_list("all")
assert not committed and sorted(b.size for b in uncommitted) == [5, 6], uncommitted
blocks.commit_block_list([BlobBlock("1"), BlobBlock("2")])
assert blocks.download_blob().readall() == b"hello world"

# Lists.
for i in range(7):
    box.upload_blob(f"tree/{i % 2}/{i}", b"x", metadata={"i": str(i)})
names = [b.name for b in box.list_blobs(name_starts_with="tree/", results_per_page=2)]
assert names == sorted(names) and len(names) == 7, names
assert {b.name: b.metadata for b in box.list_blobs(name_starts_with="tree/", include=["metadata"])}["tree/1/3"] == {"i": "3"}
assert [b.name for b in box.walk_blobs(name_starts_with="tree/", delimiter="/")] == ["tree/0/", "tree/1/"]
assert "LocalUpload/x//a ü+&.txt" in [b.name for b in box.list_blobs()]

# An address that carries its signature, as startPendingUpload hands out, good for one folder.
c = ContainerClient.from_container_url(folder)
c.upload_blob("tree/0/new", b"new")
assert "tree/0/new" in [b.name for b in c.list_blobs(name_starts_with="tree/0")]
refused(HttpResponseError, "AuthorizationFailure", lambda: c.upload_blob("tree/1/new", b"new"))
refused(HttpResponseError, "AuthorizationPermissionMismatch", lambda: c.delete_blob("tree/0/new"))
u, q = folder.split("?")
assert BlobClient.from_blob_url(u + "/tree/0/new?" + q).download_blob().readall() == b"new"

box.delete_blob("tree/0/new")
refused(ResourceNotFoundError, "BlobNotFound", lambda: box.delete_blob("tree/0/new"))
print("ok")
