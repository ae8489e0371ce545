# Print the version of Python and the packages of this environment as JSON.
import importlib.metadata as metadata
import json
import sys

packages, left, seen = [], [], set()
for dist in metadata.distributions():
    name = dist.metadata["Name"]
    if not name or name.lower() in seen:
        continue
    seen.add(name.lower())
    if name.lower() in ("pip", "setuptools", "wheel"):
        continue
    origin = json.loads(dist.read_text("direct_url.json") or "{}")
    if (dist.read_text("INSTALLER") or "").strip() == "conda":
        origin = {}  # it says where conda built the package
    if "vcs_info" in origin:
        vcs = origin["vcs_info"]
        packages.append("%s @ %s+%s@%s" % (name, vcs["vcs"], origin["url"], vcs["commit_id"]))
    elif origin.get("url", "").startswith("file:"):
        left.append(name)
    else:
        packages.append("%s==%s" % (name, dist.version))
print(json.dumps({"python": "%d.%d" % sys.version_info[:2], "packages": sorted(packages), "left": sorted(left)}))
