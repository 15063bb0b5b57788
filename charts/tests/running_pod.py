"""Runs the rendered pod with podman: the server starts as user 10001 on a read-only root, decides by the mounted rules, takes
changed rules, and ends cleanly. Without the network, so that no port of this machine is taken."""

import pathlib
import re
import shutil
import subprocess
import time

import yaml

IMAGE = "localhost/tidegate"
# Limits that a process without CAP_SYS_RESOURCE may set, too; podman's own defaults are higher.
CONTAINERS_CONF = """[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
"""


class Podman:
    """Podman with storage of its own below a folder."""

    def __init__(self, folder):
        self.folder = folder
        configuration = folder / "containers.conf"
        configuration.write_text(CONTAINERS_CONF)
        self.environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "CONTAINERS_CONF": str(configuration), "HOME": str(folder)}

    def __call__(self, *arguments, **options):
        storage = ["--storage-driver=vfs", f"--root={self.folder}/store", f"--runroot={self.folder}/run"]
        return subprocess.run(["podman", *storage, *arguments], env=self.environment, capture_output=True, text=True, timeout=120, **options)


def build_image(podman, program, tag):
    """An image with the program and the libraries that it is linked with."""
    root = podman.folder / "root"
    linked = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
    for source in [*re.findall(r"(/\S+) \(0x", linked)]:
        target = root / source.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    for name in ["usr/local/bin", "var/lib/tidegate", "etc", "tmp"]:
        (root / name).mkdir(parents=True, exist_ok=True)
    shutil.copy(program, root / "usr/local/bin/tidegate")
    archive = podman.folder / "image.tar"
    # Podman ignores fsGroup: the volume gets the owner that the folder has in the image.
    subprocess.run(["tar", "--directory", root, "--create", "--file", archive, "--owner=0", "--group=0", "--exclude=./var/lib/tidegate", "."], check=True)
    subprocess.run(["tar", "--directory", root, "--append", "--file", archive, "--owner=10001", "--group=10001", "./var/lib/tidegate"], check=True)
    changes = ['ENTRYPOINT ["/usr/local/bin/tidegate"]', "ENV PATH=/usr/local/bin", "USER 10001:10001"]
    return podman("import", *(part for change in changes for part in ("--change", change)), str(archive), f"{IMAGE}:{tag}")


def until(condition, seconds=20):
    """Whether a condition holds within a time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.1)
    return False


def try_pod(objects, program, folder):
    """What is wrong with the pod that the objects describe, or nothing. Prints why it is skipped where it cannot run."""
    if not program:
        print("skipped: no pod is run, because there is no program")
        return None
    if not shutil.which("podman") or not shutil.which("runc", path="/usr/sbin:/usr/bin"):
        print("skipped: no pod is run, because podman or runc is not installed: scripts/install podman")
        return None
    podman = Podman(folder)
    deployment = next(o for o in objects if o["kind"] == "Deployment")
    pod = deployment["spec"]["template"]
    tag = pod["spec"]["containers"][0]["image"].rpartition(":")[2]
    image = build_image(podman, program, tag)
    if image.returncode:
        print(f"skipped: no pod is run, because podman cannot import an image: {image.stderr.strip()}")
        return None
    tried = podman("run", "--rm", "--network=none", f"{IMAGE}:{tag}", "--version")
    if tried.returncode:
        print(f"skipped: no pod is run, because podman cannot run containers here: {tried.stderr.strip()}")
        return None
    try:
        return play(podman, objects, pod, folder)
    finally:
        podman("pod", "rm", "--force", "--all", "--time=0")
        podman("volume", "rm", "--force", "--all")
        # Layers of other users, which the caller could not remove.
        podman("rmi", "--force", "--all")


def play(podman, objects, pod, folder):
    # Without annotations: podman refuses those that are as long as a checksum.
    pod = dict(pod, apiVersion="v1", kind="Pod", metadata={"name": "shop", "labels": pod["metadata"]["labels"]})
    container = pod["spec"]["containers"][0]
    # Podman would publish ports, and needs systemd for probes.
    for key in ("ports", "livenessProbe", "readinessProbe"):
        container.pop(key)
    hooks = lambda o: "helm.sh/hook" in (o["metadata"].get("annotations") or {})
    maps = [o for o in objects if o["kind"] == "ConfigMap" and not hooks(o)]
    file = folder / "pod.yaml"
    file.write_text(yaml.safe_dump_all([*maps, pod]))
    played = podman("kube", "play", "--network=none", str(file))
    if played.returncode:
        return f"podman kube play: {played.stderr}"
    name = f"shop-{container['name']}"
    inside = lambda *arguments: podman("exec", name, "tidegate", *arguments)
    check = lambda: inside("check", "--attr=user_id=1").returncode
    if not until(lambda: check() == 0):
        return f"does not answer: {podman('logs', name).stderr}"
    # 3 an hour, the first of which is taken.
    answers = [check() for _ in range(3)]
    if answers != [0, 0, 1]:
        return f"a limit of 3 gave the exit codes {answers} after the first: {podman('logs', name).stderr}"
    if inside("rules", "list").returncode:
        return f"its data directory has no token: {podman('logs', name).stderr}"
    # As Kubernetes does after `helm upgrade`: the file in the volume is another.
    volume = podman("volume", "inspect", "--format={{.Mountpoint}}", next(m["metadata"]["name"] for m in maps if m["metadata"]["name"].endswith("-rules")))
    rules = pathlib.Path(volume.stdout.strip()) / "rules.yaml"
    changed = rules.with_name("rules.new")
    changed.write_text(rules.read_text().replace("3/hour", "1000/hour"))
    changed.replace(rules)
    test = next(o for o in objects if o["kind"] == "Pod")["spec"]["containers"][0]["args"]
    # The name of the Service is known only in a cluster.
    tested = inside(*(re.sub(r"^(--server=http://)[^:]+", r"\g<1>127.0.0.1", argument) for argument in test))
    if tested.returncode:
        return f"helm test fails: {test}: {tested.stdout}{tested.stderr}"
    if not until(lambda: check() == 0):
        return f"changed rules are not in force: {podman('logs', name).stderr}"
    podman("stop", "--time=30", name)
    code = podman("inspect", "--format={{.State.ExitCode}}", name).stdout.strip()
    if code != "0":
        return f"it ended with {code}: {podman('logs', name).stderr}"
    print("the rendered pod ran with podman: it decides, takes changed rules, and ends cleanly")
    return None
