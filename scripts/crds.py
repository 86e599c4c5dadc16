#!/usr/bin/env python3
"""crds.py PLAIN CHART < CRDS: splits a stream of CustomResourceDefinitions into PLAIN/<plural>.yaml, and the same marked for Helm into CHART.

Works on the text: through a YAML library and back, the files would not be what `elastic-pool crd` printed."""
import pathlib
import re
import sys

KEEP = "  annotations:\n    helm.sh/resource-policy: keep\n"


def documents(text):
    return [part.strip("\n") + "\n" for part in re.split(r"(?m)^---\s*\n", text) if part.strip()]


def marked(crd):
    if re.search(r"(?m)^  annotations:", crd):
        sys.exit("crds.py: a CRD has annotations already; add the keeping one to them here")
    # The names follow `metadata:` in what serde writes; the annotation becomes its first entry.
    result, count = re.subn(r"(?m)^metadata:\n", "metadata:\n" + KEEP, crd, count=1)
    if count != 1:
        sys.exit("crds.py: a document without metadata")
    return result


def main(plain, chart):
    crds = documents(sys.stdin.read())
    if not crds:
        sys.exit("crds.py: `elastic-pool crd` printed nothing")
    for folder in (plain, chart):
        pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
        for old in pathlib.Path(folder).glob("*.yaml"):
            old.unlink()
    for crd in crds:
        plural = re.search(r"(?m)^    plural: ([a-z]+)$", crd)
        if not plural:
            sys.exit("crds.py: a document that is no CustomResourceDefinition")
        pathlib.Path(plain, plural[1] + ".yaml").write_text(crd)
        pathlib.Path(chart, plural[1] + ".yaml").write_text(marked(crd))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
