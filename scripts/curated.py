#!/usr/bin/env python3
"""Writes internal/envs/curated.txt: the package lists of Azure's curated environments.

usage: scripts/curated.py CHECKOUT > internal/envs/curated.txt

CHECKOUT is a clone of the repository Azure/azureml-assets, bare or not. Read are the environments below assets/, and
of those that were removed since, the last version before that. Of each, the conda file and the requirements file of
its build context count, or else what its Dockerfile installs. Packages are pinned there to fix vulnerabilities of
what other packages bring; these pins become overrides, because they contradict what those packages ask for.
"""

import re
import subprocess
import sys

TREES = ("assets/training/general/", "assets/training/model_management/environments/mlflow-model-inference", "assets/inference/",
         "assets/pipelines/", "assets/responsibleai/")
TOOLS = ("pip", "setuptools", "wheel")
# Compiled against what the image has, gone from the index, or only a choice of conda's.
LEFT_OUT = ("horovod", "onnxruntime-gpu", "cpuonly")
SECURITY = re.compile(r"GHSA|CVE|transitive|vulnerab|security", re.I)
REQUIREMENT = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)(\[[^\]]*\])?\s*(.*)$")


def git(*args):
    return subprocess.run(["git", "-C", sys.argv[1], *args], check=True, capture_output=True, text=True, errors="replace").stdout


def show(commit, path):
    try:
        return git("show", f"{commit}:{path}")
    except subprocess.CalledProcessError:
        return ""


def environments():
    """(name, commit, folder) of each environment, the newest first."""
    seen = set()
    for path in git("ls-tree", "-r", "--name-only", "HEAD", "assets").splitlines():
        if re.search(r"/environments?/(.*/)?asset\.yaml$", path) and path.startswith(TREES):
            seen.add(path)
            yield "HEAD", path
    log = git("log", "--diff-filter=D", "--name-only", "--format=commit %H", "--", *TREES)
    commit = ""
    for line in log.splitlines():
        if line.startswith("commit "):
            commit = line.split()[1]
        elif re.search(r"/environments?/(.*/)?asset\.yaml$", line) and line not in seen:
            seen.add(line)
            yield commit + "^", line


def normal(line):
    """A requirement without blanks, templates and CUDA builds; '' for what is none."""
    line = re.sub(r"==\s*\{\{.*?\}\}|\{\{.*?\}\}", "", line.strip().strip("'\""))
    m = REQUIREMENT.match(line)
    if not m or line.startswith("-") or "://" in line or "$" in line or line.endswith((".txt", ".whl", ".yaml", ".yml")):
        return ""
    version = re.sub(r"\s+", "", m[3]).split(";")[0]
    version = re.sub(r"\+cu\d+|\+cpu", "", version)
    if version and version[0] not in "=<>~!":
        return ""
    if re.match(r"^=[0-9]", version):  # of conda
        version = "=" + version + ("" if version.count(".") > 1 else ".*")
    return m[1].lower().replace("_", "-") + (m[2] or "") + version


def split(lines):
    """The requirements of a list, and the overrides in it. A comment holds for its line, or for the lines below it."""
    requirements, overrides, why, heading = [], [], "", ""
    for line in lines:
        text, _, comment = line.partition(" #") if not line.strip().startswith("#") else ("", "", line)
        if not text.strip():
            if re.fullmatch(r"\s*#[ \w-]+", comment):
                heading, why = comment, ""
            else:
                why += comment
            continue
        r = normal(re.sub(r"^\s*-\s*", "", text))
        if r and project(r) in TOOLS and re.search(SECURITY, comment + why):
            r = ""
        if r:
            own = r.startswith(("azureml", "torch", "scikit", "numpy", "pandas", "scipy", "transformers"))
            security = SECURITY.search(comment) or SECURITY.search(why) or "vulnerab" in heading
            (overrides if security and not own and re.search(r"[=<>~!]", r) else requirements).append(r)
        why = ""
    return requirements, overrides


def conda(text):
    python, rest = "", []
    for line in text.partition("dependencies:")[2].splitlines():
        m = re.match(r"^\s*-\s*['\"]?python\s*=*\s*([0-9.]+)", line)
        if m:
            python = ".".join(m[1].split(".")[:2])
            continue
        if re.match(r"^\s*-\s*(pip\s*[:=<>]|pip$)", line):
            continue
        rest.append(line)
    return python, *split(rest)


def dockerfile(text):
    """Python, requirements and overrides that a Dockerfile installs into its environment."""
    text = re.sub(r"^\s*#.*\n", "", text, flags=re.M)
    text = re.sub(r"\\\n", " ", text)
    python, requirements, overrides = "", [], []
    for command in re.split(r"&&|\n|;", text):
        words = command.split()
        if "-n base" in command or "/opt/miniconda/bin/pip" in command or "/opt/conda/bin" in command:
            continue
        for i, w in enumerate(words):
            if w in ("create", "install", "update") and i > 0:
                into = overrides if "--upgrade" in words or "-U" in words else requirements
                if words[i - 1].endswith("conda"):
                    for p in words[i + 1:]:
                        m = re.match(r"^['\"]?python=+([0-9.]+)", p)
                        if m:
                            python = ".".join(m[1].split(".")[:2])
                        elif re.search(r"[=<>~]", p) and normal(p) and not p.strip("'\"").startswith("pip"):
                            requirements.append(normal(p))
                elif words[i - 1].endswith(("pip", "pip3")):
                    skip = False
                    for p in words[i + 1:]:
                        if skip or p in ("-r", "-c", "--index-url", "--extra-index-url", "-f", "--find-links", "-i"):
                            skip = not skip
                            continue
                        if normal(p):
                            into.append(normal(p))
                break
    return python, requirements, overrides


def project(r):
    return re.split(r"[\[=<>~!]", r)[0]


def unique(all, but=()):
    seen, out = set(but), []
    for r in all:
        if project(r) not in seen:
            seen.add(project(r))
            out.append(r)
    return out


def main():
    table = {}
    for commit, path in environments():
        folder = path.removesuffix("/asset.yaml")
        asset = show(commit, path)
        name = re.search(r"^name:\s*['\"]?([A-Za-z0-9._-]+)", asset, re.M)
        if not name or "environment" not in asset or name[1] in table or "windows" in path:
            continue
        docker = show(commit, folder + "/context/Dockerfile")
        base = re.findall(r"^FROM\s+(\S+)", docker, re.M)
        python, packages, overrides = "", [], []
        for file in ("conda_dependencies.yaml", "conda_dependencies.yml"):
            text = show(commit, f"{folder}/context/{file}")
            if text:
                python, packages, overrides = conda(text)
        text = show(commit, folder + "/context/requirements.txt")
        if text:
            more, over = split(text.splitlines())
            packages, overrides = packages + more, overrides + over
        version, installed, upgraded = dockerfile(docker)
        python = python or version
        if not packages:
            packages = installed
        overrides += [r for r in upgraded if project(r) not in TOOLS + ("torch", "torchvision", "torchaudio")]
        acpt = re.search(r"aifx/\S*-py(\d)(\d+)-torch(\d)(\d+)([\dx])", " ".join(base))
        if acpt:
            python = python or f"{acpt[1]}.{acpt[2]}"
            torch = [r for r in upgraded + installed if project(r) in ("torch", "torchvision", "torchaudio")]
            release = "~=%s.%s.0" if acpt[5] == "x" else "==%s.%s." + acpt[5]
            torch = torch or ["torch" + release % (acpt[3], acpt[4]), "torchvision", "torchaudio"]
            packages = torch + ["numpy", "pillow", "accelerate"] + packages
        if re.search(r"r-base|^r-", " ".join(packages)) or not packages:
            continue
        packages = [re.sub(r"^pytorch\b", "torch", r).replace("-rc1", "") for r in packages if project(r) not in LEFT_OUT]
        packages = unique(packages)
        overrides = unique(overrides)
        image = re.search(r"^\s*name:\s*(\S+)", show(commit, folder + "/environment.yaml"), re.M)
        table[name[1]] = (python or "3.10", image[1] if image else "", packages, overrides)
    print("# Azure's curated environments, from Azure/azureml-assets at " + git("rev-parse", "HEAD").strip()[:12] + ".")
    print("# Written by scripts/curated.py. Of each: name, Python, image; packages; overrides.")
    for name in sorted(table):
        python, image, packages, overrides = table[name]
        print(name, python, image)
        print("\t" + " ".join(packages))
        if overrides:
            print("\t!" + " ".join(overrides))


main()
