#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""make_sbom.py BUILD_DIR: what the packages are made of, as SPDX 2.3 JSON on standard output.

The project, what is vendored in third_party/, headers that are compiled in whole, and the libraries that the built program and shared
library are linked with, by their Debian packages and versions. The same build gives the same bytes.
"""
import hashlib
import json
import os
import re
import subprocess
import sys
import uuid
from datetime import datetime, timezone
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: of what Debian's packages say in other words
LICENSES = {"libc6": "LGPL-2.1-or-later", "libpcre2-8-0": "BSD-3-Clause", "liburing2": "LGPL-2.1-or-later OR MIT",
            "libutf8proc2": "MIT", "libcurl4": "curl", "libssl3": "Apache-2.0", "zlib1g": "Zlib",
            "libzstd1": "BSD-3-Clause", "libmicrohttpd12": "LGPL-2.1-or-later",
            "libsystemd0": "LGPL-2.1-or-later", "libedit2": "BSD-3-Clause"}  # fmt: skip


def version() -> str:
    text = (ROOT / "include/moeflux/moeflux.h").read_text()
    return re.search(r'MF_VERSION_STRING "([^"]+)"', text).group(1)


def vendored() -> list[dict]:
    """One for each folder of third_party/, which has its version in its header."""
    found = []
    for folder in sorted(p for p in (ROOT / "third_party").iterdir() if p.is_dir()):
        sources = sorted(folder.glob("*.[ch]"))
        digest = hashlib.sha256()
        for source in sources:
            digest.update(source.read_bytes())
        header = (folder / f"{folder.name}.h").read_text()
        match = re.search(rf'{folder.name.upper()}_VERSION_STRING\s+"([^"]+)"', header)
        if match is None or "MIT" not in header and "Permission is hereby granted" not in header:
            sys.exit(f"sbom: {folder}: its version or license is not known")
        found.append(package(folder.name, match.group(1), "MIT",
                             comment=f"vendored in third_party/{folder.name}",
                             sha256=digest.hexdigest()))  # fmt: skip
    return found


def compiled_in() -> list[dict]:
    """xxHash is its header alone (src/base/checksum.c)."""
    of = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", "libxxhash-dev"], check=True,
                        capture_output=True, text=True).stdout  # fmt: skip
    return [package("xxhash", of, "BSD-2-Clause", comment="compiled in: xxhash.h",
                    purl=f"pkg:deb/debian/libxxhash-dev@{of}")]  # fmt: skip


def output(*command: object) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def owner(path: str) -> str:
    """The package of a library; where /lib is /usr/lib, dpkg knows one of the two."""
    for name in (path, "/usr" + path, os.path.realpath(path)):
        found = subprocess.run(["dpkg-query", "-S", name], capture_output=True, text=True)
        if found.returncode == 0:
            return found.stdout.split(": ")[0]
    sys.exit(f"sbom: no package owns {path}")


def linked(build: Path) -> list[dict]:
    """The Debian packages that own the libraries which the products ask for."""
    owners = {}
    for product in ("libmoeflux.so", "moeflux"):
        if not (build / product).exists():
            continue
        needed = re.findall(r"NEEDED.*\[(.+)\]", output("readelf", "-d", build / product))
        paths = dict(re.findall(r"(\S+) => (\S+)", output("ldd", build / product)))
        for soname in needed:
            owners[owner(paths[soname])] = soname
    found = []
    for name, soname in sorted(owners.items()):
        query = ["dpkg-query", "-W", "-f", "${Version}", name]
        of, name = output(*query), name.split(":")[0]
        found.append(package(name, of, LICENSES.get(name, "NOASSERTION"), comment=f"linked: {soname}",
                             purl=f"pkg:deb/debian/{name}@{of}"))  # fmt: skip
    return found


def package(name: str, of: str, license: str, **more: str) -> dict:
    entry = {
        "SPDXID": "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", name),
        "name": name,
        "versionInfo": of,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": license,
        "licenseDeclared": license,
        "copyrightText": "NOASSERTION",
        "comment": more["comment"],
    }
    if "sha256" in more:
        entry["checksums"] = [{"algorithm": "SHA256", "checksumValue": more["sha256"]}]
    if "purl" in more:
        entry["externalRefs"] = [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                                  "referenceLocator": more["purl"]}]  # fmt: skip
    return entry


def document(build: Path) -> dict:
    own = package("moeflux", version(), "MIT", comment="the project")
    parts, libraries = vendored() + compiled_in(), linked(build)
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", own["SPDXID"])]
    relations += [(own["SPDXID"], "CONTAINS", p["SPDXID"]) for p in parts]
    relations += [(own["SPDXID"], "DYNAMIC_LINK", p["SPDXID"]) for p in libraries]
    packages = [own, *parts, *libraries]
    name = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(packages, sort_keys=True) + str(epoch))
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"moeflux-{version()}",
        "documentNamespace": f"urn:uuid:{name}",
        "creationInfo": {
            "created": datetime.fromtimestamp(epoch, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "creators": ["Tool: moeflux-make_sbom"],
        },
        "packages": packages,
        "relationships": [
            {"spdxElementId": a, "relationshipType": kind, "relatedSpdxElement": b}
            for a, kind, b in relations
        ],
    }


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: make_sbom.py BUILD_DIR")
    print(json.dumps(document(Path(sys.argv[1])), indent=2))
