"""Starts the server with the environment and the settings file of each rendered pod, on this machine: what the schema and the
templates let through, the server accepts; and sends it the check of the rendered pod of `helm test`. Files from Secrets are made
here; Redis is never reached."""

import os
import pathlib
import re
import subprocess
import threading

TOKEN = "0123456789abcdef0123456789abcdef"


def certificates(folder):
    """An authority, and a certificate for servers and clients that it signed, with its key; by the ending of the files that have them."""
    request = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    signed = ["-CA", folder / "ca", "-CAkey", folder / "ca-key", "-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE"]
    for command in (
        [*request, "-subj", "/CN=an authority", "-keyout", folder / "ca-key", "-out", folder / "ca"],
        [*request, "-subj", "/CN=localhost", *signed, "-keyout", folder / "key", "-out", folder / "cert"],
    ):
        subprocess.run(command, check=True, capture_output=True)
    files = {"ca.crt": "ca", "clients.crt": "ca", ".crt": "cert", ".key": "key"}
    return {ending: (folder / file).read_text() for ending, file in files.items()}


def content(path, pems):
    """What a file that the chart does not make has, by its name."""
    for ending, pem in pems.items():
        if path.name.endswith(ending):
            return pem
    if path.name == "rules.yaml":
        return "rules: [{id: all, per: [], limit: 100/minute}]\n"
    if path.name == "clients.yaml":
        return "clients: {}\n"
    return TOKEN


class Place:
    """A folder that stands for the root of a container: the folders that it mounts, and the files in them."""

    def __init__(self, folder, container):
        self.folder = folder
        self.mounts = {mount["name"]: mount["mountPath"] for mount in container.get("volumeMounts") or []}
        for mount in self.mounts.values():
            (folder / mount.lstrip("/")).mkdir(parents=True, exist_ok=True)

    def here(self, text):
        either = "|".join(map(re.escape, self.mounts.values()))
        return re.sub(rf"(?<![^\s=])({either})(?![\w-])", rf"{self.folder}\1", text) if either else text

    def make(self, paths, pems):
        for path in paths:
            file = pathlib.Path(path)
            if path.startswith(f"{self.folder}/etc") and not file.exists():
                file.write_text(content(file, pems))


def problem(objects, program, folder, pems):
    """Why the server of the objects does not start, or does not answer the check of `helm test`; or nothing."""
    workload = next(o for o in objects if o["kind"] in ("Deployment", "StatefulSet"))
    pod = workload["spec"]["template"]["spec"]
    container = pod["containers"][0]
    place = Place(folder, container)
    environment = {"PATH": os.environ["PATH"]}
    for variable in container["env"]:
        value = variable.get("value", "from-a-secret-0123456789")
        # Any free port of this machine.
        environment[variable["name"]] = re.sub(r"^(0\.0\.0\.0|\[::\]):\d+$", "127.0.0.1:0", place.here(value))
    maps = {o["metadata"]["name"]: o["data"] for o in objects if o["kind"] == "ConfigMap"}
    for volume in pod.get("volumes") or []:
        for name, text in maps.get((volume.get("configMap") or {}).get("name"), {}).items():
            (pathlib.Path(place.here(place.mounts[volume["name"]])) / name).write_text(place.here(text))
    # Files that settings name, from Secrets and from ConfigMaps that are not the chart's.
    settings = "".join(maps.get(f"{workload['metadata']['name']}-config", {}).values())
    place.make([*environment.values(), *map(place.here, re.findall(r"_file: (\S+)", settings))], pems)
    server = subprocess.Popen([program, *container["args"]], env=environment, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    # A server that neither listens nor ends.
    timer = threading.Timer(30, server.kill)
    timer.start()
    listening = re.match(r"listening http=127\.0\.0\.1:(\d+)", server.stdout.readline())
    # Rules that are in Redis alone are not known here; and the chart does not know the tokens of `config`.
    is_decided = "TIDEGATE_RULES" in environment or "TIDEGATE_REDIS" not in environment
    is_decided &= "token_env" not in settings
    failed = tested(objects, program, folder / "test", pems, listening[1]) if listening and is_decided else None
    server.kill()
    timer.cancel()
    log = server.communicate()[1]
    return failed if listening else f"the server does not start: {log}"


def tested(objects, program, folder, pems, port):
    """Why the check of `helm test` fails, or nothing. Run only where this server has what the cluster would have."""
    pod = next(o for o in objects if o["kind"] == "Pod")
    container = pod["spec"]["containers"][0]
    place = Place(folder, container)
    folder.mkdir(parents=True, exist_ok=True)
    arguments = [re.sub(r"^(--server=https?://).*", rf"\1localhost:{port}", place.here(argument)) for argument in container["args"]]
    place.make([argument.partition("=")[2] for argument in arguments], pems)
    is_public = any(a.startswith("--server=https") for a in arguments) and not any(a.startswith("--ca-file") for a in arguments)
    if is_public:
        # Only a public authority could have signed its certificate.
        return None
    environment = {variable["name"]: TOKEN for variable in container.get("env") or []}
    check = subprocess.run([program, *arguments], env=environment, cwd=folder, capture_output=True, text=True)
    return None if check.returncode == 0 else f"helm test: {check.stdout}{check.stderr}"
