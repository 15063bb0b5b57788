"""Writes an OCI image index as one archive, without a container engine: for each program one layer with it, the certificates of
public authorities, and the folder for its data. Everything in it depends on the arguments alone: the same input gives the same bytes.

python3 packaging/image.py ARCHIVE plain|ratelimit VERSION REVISION SECONDS LEVEL CERTIFICATES PROGRAM...
"""

import datetime
import gzip
import hashlib
import io
import json
import pathlib
import struct
import sys
import tarfile

USER = 10001
# The machine in the header of an ELF file, and what OCI calls it.
ARCHITECTURES = {62: "amd64", 183: "arm64"}
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


def architecture(program):
    if program[:4] != b"\x7fELF":
        sys.exit("image: the program is not an ELF file")
    machine = struct.unpack_from("<H", program, 18)[0]
    if machine not in ARCHITECTURES:
        sys.exit(f"image: no architecture of images for the ELF machine {machine}")
    return ARCHITECTURES[machine]


class Tar:
    """An archive whose entries differ in nothing but what they are given."""

    def __init__(self, seconds):
        self.bytes = io.BytesIO()
        self.tar = tarfile.open(fileobj=self.bytes, mode="w", format=tarfile.USTAR_FORMAT)
        self.seconds = seconds

    def link(self, name, target):
        entry = tarfile.TarInfo(name)
        entry.mtime, entry.mode, entry.type, entry.linkname = self.seconds, 0o777, tarfile.SYMTYPE, target
        self.tar.addfile(entry)

    def add(self, name, content=None, mode=0o644, user=0):
        entry = tarfile.TarInfo(name)
        entry.mtime, entry.mode, entry.uid, entry.gid = self.seconds, mode, user, user
        if content is None:
            entry.type = tarfile.DIRTYPE
            self.tar.addfile(entry)
        else:
            entry.size = len(content)
            self.tar.addfile(entry, io.BytesIO(content))

    def finish(self):
        self.tar.close()
        return self.bytes.getvalue()


def layer(program, certificates, seconds):
    tar = Tar(seconds)
    for folder in ("bin", "etc", "etc/ssl", "etc/ssl/certs", "usr", "usr/local", "usr/local/bin", "var", "var/lib"):
        tar.add(folder, mode=0o755)
    tar.add("var/lib/tidegate", mode=0o750, user=USER)
    tar.add("etc/passwd", f"root:x:0:0:root:/:/sbin/nologin\ntidegate:x:{USER}:{USER}::/var/lib/tidegate:/sbin/nologin\n".encode())
    tar.add("etc/group", f"root:x:0:\ntidegate:x:{USER}:\n".encode())
    tar.add("etc/ssl/certs/ca-certificates.crt", certificates)
    tar.add("usr/local/bin/tidegate", program, mode=0o755)
    # Where envoyproxy/ratelimit has its program: started by this name, it runs in its place.
    tar.link("bin/ratelimit", "/usr/local/bin/tidegate")
    return tar.finish()


class Blobs(dict):
    """Contents by digest."""

    def put(self, content, media_type, **more):
        if not isinstance(content, bytes):
            content = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
        digest = hashlib.sha256(content).hexdigest()
        self[digest] = content
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content), **more}


def image(blobs, program, certificates, version, revision, seconds, level, start):
    created = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    labels = {
        "org.opencontainers.image.title": "tidegate",
        "org.opencontainers.image.description": "An exact rate limiter for APIs",
        "org.opencontainers.image.version": version,
        "org.opencontainers.image.revision": revision,
        "org.opencontainers.image.created": created,
        "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
    }
    contents = layer(program, certificates, seconds)
    platform = {"architecture": architecture(program), "os": "linux"}
    config = {
        **platform,
        "created": created,
        "config": {
            # By number, so that Kubernetes can see that it is not root.
            "User": f"{USER}:{USER}",
            # A container is reached from outside of it, so the server listens on all addresses here.
            "Env": [
                "PATH=/usr/local/bin",
                "TIDEGATE_HTTP=0.0.0.0:8080",
                "TIDEGATE_GRPC=0.0.0.0:8081",
                "TIDEGATE_DATA_DIR=/var/lib/tidegate",
            ],
            **start,
            "ExposedPorts": {"8080/tcp": {}, "8081/tcp": {}},
            "Volumes": {"/var/lib/tidegate": {}},
            "WorkingDir": "/var/lib/tidegate",
            "Labels": labels,
        },
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(contents).hexdigest()]},
        "history": [{"created": created, "created_by": "scripts/image"}],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": blobs.put(config, CONFIG),
        "layers": [blobs.put(gzip.compress(contents, compresslevel=level, mtime=0), LAYER)],
        "annotations": labels,
    }
    return blobs.put(manifest, MANIFEST, platform=platform)


# How the variants of the image are started. The second is for deployments of envoyproxy/ratelimit that name no command.
STARTS = {
    "plain": {"Entrypoint": ["/usr/local/bin/tidegate"], "Cmd": ["serve"]},
    "ratelimit": {"Entrypoint": ["/bin/ratelimit"]},
}


def main(archive, variant, version, revision, seconds, level, certificates, *programs):
    seconds, level = int(seconds), int(level)
    certificates = pathlib.Path(certificates).read_bytes()
    blobs = Blobs()
    programs = [pathlib.Path(program).read_bytes() for program in programs]
    architectures = sorted(architecture(program) for program in programs)
    if not programs or len(set(architectures)) < len(programs):
        sys.exit(f"image: one program for each architecture is needed, not {architectures}")
    images = [image(blobs, program, certificates, version, revision, seconds, level, STARTS[variant]) for program in programs]
    images.sort(key=lambda one: one["platform"]["architecture"])
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": images}
    tag = version if variant == "plain" else f"{version}-{variant}"
    name = {"org.opencontainers.image.ref.name": f"tidegate:{tag}", "io.containerd.image.name": f"localhost/tidegate:{tag}"}
    if len(images) == 1:
        # Older engines load an archive only if its index names an image, not another index.
        top = {**index, "manifests": [{**images[0], "annotations": name}]}
    else:
        top = {**index, "manifests": [blobs.put(index, INDEX, annotations=name)]}
    tar = Tar(seconds)
    tar.add("oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
    tar.add("index.json", json.dumps(top, sort_keys=True, separators=(",", ":")).encode())
    tar.add("blobs", mode=0o755)
    tar.add("blobs/sha256", mode=0o755)
    for digest in sorted(blobs):
        tar.add(f"blobs/sha256/{digest}", blobs[digest])
    pathlib.Path(archive).write_bytes(tar.finish())
    print(f"{archive}: for {', '.join(architectures)}")


main(*sys.argv[1:])
