"""Checks an image archive by what the OCI specification and this project promise, without a container engine.

python3 packaging/check_image.py ARCHIVE plain|ratelimit LARGEST
"""

import gzip
import hashlib
import io
import json
import sys
import tarfile


def check(holds, what):
    if not holds:
        sys.exit(f"image: {what}")


STARTS = {"plain": ["/usr/local/bin/tidegate", "serve"], "ratelimit": ["/bin/ratelimit"]}


def main(archive, variant, largest):
    with tarfile.open(archive) as tar:
        files = {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}

    def blob(descriptor):
        content = files["blobs/sha256/" + descriptor["digest"].removeprefix("sha256:")]
        check(len(content) == descriptor["size"], f"{descriptor['digest']} has another size")
        check("sha256:" + hashlib.sha256(content).hexdigest() == descriptor["digest"], f"{descriptor['digest']} has another digest")
        return content

    check(json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}, "no OCI layout")
    (top,) = json.loads(files["index.json"])["manifests"]
    tag = top["annotations"]["org.opencontainers.image.ref.name"]
    check(tag.endswith("-ratelimit") == (variant == "ratelimit"), f"the image {tag} is not the variant {variant}")
    is_index = top["mediaType"].endswith("index.v1+json")
    for descriptor in json.loads(blob(top))["manifests"] if is_index else [top]:
        check_image(blob, descriptor, STARTS[variant], int(largest))


def check_image(blob, descriptor, start, largest):
    manifest = json.loads(blob(descriptor))
    config = json.loads(blob(manifest["config"]))
    platform = {key: config[key] for key in ("architecture", "os")}
    check(platform == descriptor["platform"], f"an image for {platform} is listed for {descriptor['platform']}")
    settings = config["config"]
    check(settings["User"] == "10001:10001", "it runs as another user than 10001")
    check(settings["Entrypoint"] + settings.get("Cmd", []) == start, f"it is started as {settings['Entrypoint']}, not {start}")
    labels = settings["Labels"]
    for name in ("title", "description", "version", "revision", "created", "licenses"):
        check(labels.get(f"org.opencontainers.image.{name}"), f"no label {name}")
    layers = [gzip.decompress(blob(layer)) for layer in manifest["layers"]]
    check(["sha256:" + hashlib.sha256(layer).hexdigest() for layer in layers] == config["rootfs"]["diff_ids"], "the layers have other digests")
    entries = {entry.name: entry for layer in layers for entry in tarfile.open(fileobj=io.BytesIO(layer))}
    program, data = entries["usr/local/bin/tidegate"], entries["var/lib/tidegate"]
    check((program.mode, program.uid) == (0o755, 0), "the program can be changed by the server, or not be started")
    check(entries["bin/ratelimit"].linkname == "/usr/local/bin/tidegate", "the program is not there by the name of envoyproxy/ratelimit")
    check((data.mode, data.uid, data.gid) == (0o750, 10001, 10001), "the data directory is not the server's own")
    check(entries["etc/ssl/certs/ca-certificates.crt"].size > 100_000, "no certificates")
    size = sum(layer["size"] for layer in manifest["layers"])
    unpacked = sum(map(len, layers))
    check(unpacked <= largest, f"{platform['architecture']} has {unpacked} bytes, more than {largest}")
    print(f"image for {platform['architecture']}, started as {start[0]}: {size} bytes, {unpacked} unpacked")


main(*sys.argv[1:])
